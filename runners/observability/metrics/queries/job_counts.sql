-- How many jobs there are.
SELECT count(*) FILTER (WHERE finished_at IS NULL) AS unfinished,
       count(*) FILTER (WHERE finished_at IS NOT NULL) AS finished
FROM dataflow.jobs
