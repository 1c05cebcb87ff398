-- Records of one key that came too late, by window.
SELECT transform, window_start, window_end, max(watermark) AS watermark, sum(count)::bigint AS count
FROM dataflow.readable_late_records
WHERE job = %(job)s AND key = %(key)s
GROUP BY 1, 2, 3
ORDER BY window_start
LIMIT 200
