-- Timers of one key, found by the hash of its encoding.
SELECT c.name AS computation, dataflow.window_bound(t.tag, 1) AS window_start,
       dataflow.window_bound(t.tag, 9) AS window_end, t.domain, dataflow.instant(t.fire_us) AS fires_at
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.timers t USING (computation_id)
WHERE j.name = %(job)s AND t.key_hash = ANY(%(hashes)s::bigint[])
ORDER BY t.fire_us
LIMIT 200
