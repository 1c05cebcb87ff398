-- How many records each transform has dropped as too late, and each stage has set aside; with those that were purged.
SELECT kind, source, sum(count)::bigint AS count
FROM (SELECT 'late' AS kind, l.transform AS source, l.count
      FROM dataflow.late_records l JOIN dataflow.jobs j USING (job_id) WHERE j.name = %(job)s
      UNION ALL
      SELECT 'dead', d.stage, 1
      FROM dataflow.dead_letters d JOIN dataflow.jobs j USING (job_id) WHERE j.name = %(job)s
      UNION ALL
      SELECT p.kind, p.source, p.count
      FROM dataflow.purged p JOIN dataflow.jobs j USING (job_id) WHERE j.name = %(job)s) k
GROUP BY kind, source
ORDER BY kind, source
