"""METRICS: all metrics, each with what it is, where it is read, where it is shown, and when it alerts.

From this table come the answers to Prometheus, ``docs/metrics.md``, the dashboard and the alert rules.  A counter that
restarts with a driver or a worker is a series of that driver or worker alone, since a sum of several would seem to
restart whenever one of them does.
"""

from dataflow.metric_updates import MetricKind
from runners.observability.metrics import readings as read
from runners.observability.metrics.metric_spec import Alert, MetricSpec, MetricType, Panel
from runners.observability.metrics.readout import JOBS_MAX, USER_METRICS_MAX

_JOB = ("job",)
_STAGE = ("job", "stage")
_SLOT = ("job", "slot")
_USER = ("job", "transform", "namespace", "name")
_USER_LEGEND = "{{transform}} {{namespace}}.{{name}}"
_RUNBOOK = "dataflow why {{ $labels.job }} names what holds it."

_OF_STORE = (
    MetricSpec(
        name="dataflow_store_up",
        type=MetricType.GAUGE,
        labels=(),
        help="1 if the store has answered in time, else 0",
        source="whether the store could be read",
        high="at 0 nothing is known of any job: all other metrics are missing",
        panel=Panel(section="Store", title="Store answers", expr="dataflow_store_up"),
        samples=read.always(lambda found: float(found.is_up)),
        alerts=(
            Alert(
                name="DataflowStoreDown",
                expr="dataflow_store_up == 0",
                for_="1m",
                severity="critical",
                summary="The store of the jobs does not answer.",
                action="Look at Postgres: no job can commit without it.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_scrape_seconds",
        type=MetricType.GAUGE,
        labels=(),
        help="How long the store took to answer this time",
        source="measured by the exporter",
        high="the store is slow; above the scrape timeout of Prometheus nothing is recorded",
        panel=Panel(
            section="Store", title="Time to read the store", expr="dataflow_scrape_seconds", unit="s"
        ),
        samples=read.always(lambda found: found.took_s),
    ),
    MetricSpec(
        name="dataflow_unread",
        type=MetricType.GAUGE,
        labels=("part",),
        help="1 if this part could not be read this time, else 0",
        source="statements that failed, were not allowed, or took longer than two seconds",
        high="metrics of this part are missing; its login may lack a right, or the store is slow",
        panel=Panel(
            section="Store", title="Parts that cannot be read", expr="dataflow_unread",
            legend="{{part}}",
        ),
        samples=read.unread_parts,
        alerts=(
            Alert(
                name="DataflowUnread",
                expr="dataflow_unread == 1",
                for_="10m",
                severity="warning",
                summary="{{ $labels.part }} cannot be read, so metrics are missing.",
                action="Grant SELECT on the schema dataflow to the login of the exporter, and look at the load of the "
                "store.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_jobs",
        type=MetricType.GAUGE,
        labels=("state",),
        help="Jobs in the store: unfinished or finished",
        source="dataflow.jobs",
        high=f"of unfinished ones the first {JOBS_MAX} by name have metrics",
        panel=Panel(section="Overview", title="Jobs", expr="dataflow_jobs", legend="{{state}}"),
        samples=read.job_states,
    ),
    MetricSpec(
        name="dataflow_store_bytes",
        type=MetricType.GAUGE,
        labels=("table",),
        help="Size of the tables of this name, of all jobs together, with their indexes",
        source="pg_total_relation_size",
        high="state or what waits grows, or nothing is freed: compare with the dead rows",
        panel=Panel(
            section="Store", title="Size of tables", expr="topk(8, dataflow_store_bytes)",
            legend="{{table}}", unit="bytes",
        ),
        samples=read.of_tables("bytes"),
    ),
    MetricSpec(
        name="dataflow_store_dead_rows",
        type=MetricType.GAUGE,
        labels=("table",),
        help="Rows that are deleted or overwritten and not freed yet, as the server counts them",
        source="pg_stat_all_tables.n_dead_tup",
        high="vacuum does not keep up, or a transaction keeps it from freeing",
        panel=Panel(
            section="Store", title="Rows to be freed", expr="topk(8, dataflow_store_dead_rows)",
            legend="{{table}}",
        ),
        samples=read.of_tables("dead"),
    ),
    MetricSpec(
        name="dataflow_store_oldest_transaction_seconds",
        type=MetricType.GAUGE,
        labels=(),
        help="For how long the oldest transaction has kept the server from freeing rows",
        source="pg_stat_activity, pg_prepared_xacts",
        high="tables grow until it ends, for all jobs",
        panel=Panel(
            section="Store", title="Oldest transaction",
            expr="dataflow_store_oldest_transaction_seconds", unit="s",
        ),
        samples=read.of_store(lambda found: found.oldest_s),
        alerts=(
            Alert(
                name="DataflowLongTransaction",
                expr="dataflow_store_oldest_transaction_seconds > 300",
                for_="1m",
                severity="warning",
                summary="A transaction has kept the store from freeing rows for {{ $value | humanizeDuration }}.",
                action="dataflow check names the session; end it.",
            ),
        ),
    ),
)  # fmt: skip

_OF_DRIVER = (
    MetricSpec(
        name="dataflow_job_driven",
        type=MetricType.GAUGE,
        labels=_JOB,
        help="1 if a driver has this unfinished job, else 0",
        source="dataflow.job_drivers",
        high="at 0 nobody runs the job",
        panel=Panel(
            section="Overview", title="Jobs with a driver", expr='dataflow_job_driven{job=~"$job"}',
            legend="{{job}}",
        ),
        samples=read.of_job(lambda job: float(job.is_driven)),
        alerts=(
            Alert(
                name="DataflowJobNotRunning",
                expr="dataflow_job_driven == 0",
                for_="2m",
                severity="critical",
                summary="Nobody runs job {{ $labels.job }}.",
                action="Run it again, and it goes on where it was; dataflow forget, if it is not wanted.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_snapshot_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=_JOB,
        help="When the driver has last written what it knows, by the clock of the store",
        source="dataflow.snapshot_status.written_at",
        high="a driver that lives writes once a second; if this stands still, so do all metrics of the job but "
        "lags, which grow",
        panel=Panel(
            section="Overview", title="Age of what the driver has written",
            expr='time() - dataflow_snapshot_timestamp_seconds{job=~"$job"}', legend="{{job}}",
            unit="s",
        ),
        samples=read.of_job(lambda job: read.instant(job.written_us)),
        alerts=(
            Alert(
                name="DataflowDriverSilent",
                expr="time() - dataflow_snapshot_timestamp_seconds > 15 and dataflow_job_driven == 1",
                for_="30s",
                severity="critical",
                summary="The driver of job {{ $labels.job }} has the job, and has written nothing for "
                "{{ $value | humanizeDuration }}.",
                action="Look at its process: it may be stopped, overloaded, or cut off from the store.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_driver_start_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=_JOB,
        help="When the driver began to run the job",
        source="driver.started_us",
        high="each change is a restart of the driver",
        panel=Panel(
            section="Overview", title="Restarts of drivers in an hour",
            expr='changes(dataflow_driver_start_timestamp_seconds{job=~"$job"}[1h])', legend="{{job}}",
        ),
        samples=read.of_snapshot(lambda found: read.seconds(found.driver.started_us)),
        alerts=(
            Alert(
                name="DataflowDriverRestarts",
                expr="changes(dataflow_driver_start_timestamp_seconds[30m]) > 3",
                for_="0s",
                severity="warning",
                summary="The driver of job {{ $labels.job }} has started {{ $value }} times in half an hour.",
                action="dataflow troubles {{ $labels.job }} has the reasons.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_driver_round_seconds",
        type=MetricType.GAUGE,
        labels=_JOB,
        help="The longest round of the driver's loop in the last second",
        source="driver.longest_round_ms",
        high="workers wait for their driver: it has too much to do, or its host has",
        panel=Panel(
            section="Workers", title="Longest round of the driver",
            expr='dataflow_driver_round_seconds{job=~"$job"}', legend="{{job}}", unit="s",
        ),
        samples=read.of_snapshot(lambda found: found.driver.longest_round_ms / 1_000),
    ),
    MetricSpec(
        name="dataflow_workers_wanted",
        type=MetricType.GAUGE,
        labels=_JOB,
        help="How many workers the job is to have",
        source="driver.workers",
        high="compare with those that are ready",
        panel=Panel(
            section="Workers", title="Workers", expr='dataflow_workers_wanted{job=~"$job"}',
            legend="{{job}} wanted",
        ),
        samples=read.of_snapshot(lambda found: float(found.driver.workers)),
    ),
    MetricSpec(
        name="dataflow_workers_ready",
        type=MetricType.GAUGE,
        labels=_JOB,
        help="How many workers own ranges, or are ready to",
        source="driver.workers_ready",
        high="fewer than wanted: workers have died, or the cluster has no room",
        panel=Panel(
            section="Workers", title="Workers", expr='dataflow_workers_ready{job=~"$job"}',
            legend="{{job}} ready",
        ),
        samples=read.of_snapshot(lambda found: float(found.driver.workers_ready)),
        alerts=(
            Alert(
                name="DataflowWorkersMissing",
                expr="dataflow_workers_ready < dataflow_workers_wanted and dataflow_job_driven == 1",
                for_="2m",
                severity="warning",
                summary="Job {{ $labels.job }} has only {{ $value }} of its workers.",
                action="dataflow troubles {{ $labels.job }} has why they ended or wait; has Spark free cores?",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_workers_replaced_total",
        type=MetricType.COUNTER,
        labels=_JOB,
        help="Workers that were replaced since the driver began",
        source="counts.workers_replaced",
        high="workers die, or are silent for longer than their lease",
        panel=Panel(
            section="Workers", title="Workers replaced in an hour",
            expr='increase(dataflow_workers_replaced_total{job=~"$job"}[1h])', legend="{{job}}",
        ),
        samples=read.of_count("workers_replaced"),
        alerts=(
            Alert(
                name="DataflowWorkersDie",
                expr="increase(dataflow_workers_replaced_total[15m]) > 3",
                for_="0s",
                severity="warning",
                summary="Workers of job {{ $labels.job }} end again and again.",
                action="dataflow troubles {{ $labels.job }} has the reasons; tries_per_record sets records aside that "
                "end processes.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_records_read_total",
        type=MetricType.COUNTER,
        labels=_JOB,
        help="Records that sources have read since the driver began",
        source="counts.records_read",
        high="the load; at 0 in a second there is no input, or sources wait",
        panel=Panel(
            section="Records", title="Records read in a second",
            expr='rate(dataflow_records_read_total{job=~"$job"}[1m])', legend="{{job}}",
        ),
        samples=read.of_count("records_read"),
    ),
    MetricSpec(
        name="dataflow_records_late_total",
        type=MetricType.COUNTER,
        labels=_JOB,
        help="Records that were dropped as too late since the driver began; each is kept as a row",
        source="counts.records_late",
        high="sources are less in order than they say, or allowed lateness is short",
        panel=Panel(
            section="Records", title="Records set aside in a minute",
            expr='increase(dataflow_records_late_total{job=~"$job"}[1m])', legend="{{job}} late",
        ),
        samples=read.of_count("records_late"),
        alerts=(
            Alert(
                name="DataflowRecordsLate",
                expr="increase(dataflow_records_late_total[10m]) > 0",
                for_="0s",
                severity="info",
                summary="Job {{ $labels.job }} has dropped records that came too late.",
                action="dataflow late {{ $labels.job }} lists them, and dataflow replay takes them in.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_records_dead_total",
        type=MetricType.COUNTER,
        labels=_JOB,
        help="Records that user code could not take since the driver began; each is kept as a row",
        source="counts.records_dead",
        high="user code fails on its input",
        panel=Panel(
            section="Records", title="Records set aside in a minute",
            expr='increase(dataflow_records_dead_total{job=~"$job"}[1m])', legend="{{job}} dead",
        ),
        samples=read.of_count("records_dead"),
        alerts=(
            Alert(
                name="DataflowRecordsDead",
                expr="increase(dataflow_records_dead_total[10m]) > 0",
                for_="0s",
                severity="warning",
                summary="User code of job {{ $labels.job }} fails on records, which are set aside.",
                action="dataflow dead {{ $labels.job }} lists them with their errors.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_records_repeated_total",
        type=MetricType.COUNTER,
        labels=_JOB,
        help="Records whose id had been seen since the driver began, and that were dropped",
        source="counts.duplicates",
        high="a producer sends twice",
        panel=Panel(
            section="Records", title="Records set aside in a minute",
            expr='increase(dataflow_records_repeated_total{job=~"$job"}[1m])',
            legend="{{job}} repeated",
        ),
        samples=read.of_count("duplicates"),
    ),
    MetricSpec(
        name="dataflow_stragglers_total",
        type=MetricType.COUNTER,
        labels=_JOB,
        help="Weak productions that became durable because they were not acknowledged within a second",
        source="counts.stragglers",
        high="receivers of weak productions are slow",
        panel=Panel(
            section="Workers", title="Stragglers in a second",
            expr='rate(dataflow_stragglers_total{job=~"$job"}[1m])', legend="{{job}}",
        ),
        samples=read.of_count("stragglers"),
    ),
    MetricSpec(
        name="dataflow_long_rounds_seconds_total",
        type=MetricType.COUNTER,
        labels=_JOB,
        help="Time of workers in rounds with more than ten milliseconds of work, since the driver began",
        source="counts.long_ms",
        high="workers have much to do: results come later",
        panel=Panel(
            section="Workers", title="Workers in long rounds",
            expr='rate(dataflow_long_rounds_seconds_total{job=~"$job"}[1m])', legend="{{job}}",
        ),
        samples=read.of_count("long_ms", 1e-3),
    ),
    MetricSpec(
        name="dataflow_state_cache_bytes",
        type=MetricType.GAUGE,
        labels=_JOB,
        help="State that workers keep in memory",
        source="counts.cache_bytes",
        high="near state_cache_bytes of all workers, state is read from the store",
        panel=Panel(
            section="State", title="State in memory", expr='dataflow_state_cache_bytes{job=~"$job"}',
            legend="{{job}}", unit="bytes",
        ),
        samples=read.of_count("cache_bytes"),
    ),
    *(
        MetricSpec(
            name=f"dataflow_state_cache_{name}_total",
            type=MetricType.COUNTER,
            labels=_JOB,
            help=f"{what}, since the driver began",
            source=f"counts.cache_{name}",
            high=high,
            panel=Panel(
                section="State", title="State looked up in a second",
                expr=f'rate(dataflow_state_cache_{name}_total{{job=~"$job"}}[1m])',
                legend=f"{{{{job}}}} {name}",
            ),
            samples=read.of_count(f"cache_{name}"),
        )
        for name, what, high in (
            ("hits", "State that was in memory when it was needed", "the better"),
            ("misses", "State that was not in memory", "state does not fit into memory"),
            ("loads", "Reads of state from the store", "each is a wait for the store"),
            ("evictions", "State that left memory for other state", "as misses"),
        )
    ),
)  # fmt: skip

_OF_STAGES = (
    MetricSpec(
        name="dataflow_stage_event_time_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="How far event time has come at the output of the stage; missing before its first and after its last",
        source="stages.*.output_us",
        high="if it stands still, something holds it",
        panel=Panel(
            section="Event time", title="Event time in a second of the clock",
            expr='deriv(dataflow_stage_event_time_timestamp_seconds{job=~"$job"}[1m])',
            legend="{{job}} {{stage}}",
        ),
        samples=read.of_stage(lambda stage, _: read.event_time(stage.output_us)),
        alerts=(
            Alert(
                name="DataflowEventTimeStuck",
                expr="changes(dataflow_stage_event_time_timestamp_seconds[5m]) == 0 and "
                "dataflow_stage_own_lag_seconds > 60 and on (job) dataflow_job_driven == 1",
                for_="1m",
                severity="critical",
                summary="Event time of {{ $labels.stage }} of job {{ $labels.job }} has stood still for five minutes.",
                action=_RUNBOOK,
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_stage_inherited_lag_seconds",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="How far the input of the stage is behind the clock of the store; 0 of a source",
        source="stages.*.input_us",
        high="look at the stages before it",
        panel=Panel(
            section="Event time", title="Inherited lag",
            expr='dataflow_stage_inherited_lag_seconds{job=~"$job"}', legend="{{job}} {{stage}}",
            unit="s",
        ),
        samples=read.of_stage(read.inherited_lag),
    ),
    MetricSpec(
        name="dataflow_stage_own_lag_seconds",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="How far the stage is behind its input; a source behind the clock; infinite: it has emitted nothing yet",
        source="stages.*.input_us, stages.*.output_us",
        high="here is the place for a remedy",
        panel=Panel(
            section="Event time", title="Own lag",
            expr='dataflow_stage_own_lag_seconds{job=~"$job"}', legend="{{job}} {{stage}}", unit="s",
        ),
        samples=read.of_stage(read.own_lag),
        alerts=(
            Alert(
                name="DataflowStageBehind",
                expr="dataflow_stage_own_lag_seconds > 300",
                for_="5m",
                severity="warning",
                summary="{{ $labels.stage }} of job {{ $labels.job }} is {{ $value | humanizeDuration }} behind its "
                "input.",
                action=_RUNBOOK,
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_stage_unfired_seconds",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="How far the stage has not fired yet, although its input watermark has come so far; timers are overdue by "
        "as much",
        source="stages.*.input_us, ranges.*.processed_us",
        high="more windows are due than workers can fire",
        panel=Panel(
            section="Event time", title="Not fired yet",
            expr='dataflow_stage_unfired_seconds{job=~"$job"}', legend="{{job}} {{stage}}", unit="s",
        ),
        samples=read.of_ranges(read.unfired),
        alerts=(
            Alert(
                name="DataflowTimersOverdue",
                expr="dataflow_stage_unfired_seconds > 60",
                for_="1m",
                severity="warning",
                summary="Windows of {{ $labels.stage }} of job {{ $labels.job }} are due and have not fired.",
                action=_RUNBOOK,
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_stage_records_per_second",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="Records that the stage has taken in, in a second since the driver wrote before",
        source="stages.*.records_per_s",
        high="the load",
        panel=Panel(
            section="Records", title="Records of stages in a second",
            expr='dataflow_stage_records_per_second{job=~"$job"}', legend="{{job}} {{stage}}",
        ),
        samples=read.of_stage(lambda stage, _: stage.records_per_s),
    ),
    MetricSpec(
        name="dataflow_unacknowledged_productions",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="Productions to this stage that are durable and not acknowledged",
        source="dataflow.channel_status.pending",
        high="the stage is slow, or its ranges have no owner",
        panel=Panel(
            section="Deliveries", title="Unacknowledged productions",
            expr='dataflow_unacknowledged_productions{job=~"$job"}', legend="{{job}} {{stage}}",
        ),
        samples=read.of_rows(lambda job: job.productions, "receiver", lambda row: float(row["pending"])),
    ),
    MetricSpec(
        name="dataflow_oldest_unacknowledged_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="When the oldest of them became durable, by the clock of the store; missing if there are none",
        source="dataflow.channel_status.oldest",
        high="event time is held since then",
        panel=Panel(
            section="Deliveries", title="Age of the oldest unacknowledged production",
            expr='time() - dataflow_oldest_unacknowledged_timestamp_seconds{job=~"$job"}',
            legend="{{job}} {{stage}}", unit="s",
        ),
        samples=read.of_rows(
            lambda job: job.productions, "receiver", lambda row: read.instant(row["oldest"])
        ),
        alerts=(
            Alert(
                name="DataflowUnacknowledged",
                expr="time() - dataflow_oldest_unacknowledged_timestamp_seconds > 60",
                for_="1m",
                severity="warning",
                summary="{{ $labels.stage }} of job {{ $labels.job }} has not taken in what was sent to it "
                "{{ $value | humanizeDuration }} ago.",
                action=_RUNBOOK,
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_ranges",
        type=MetricType.GAUGE,
        labels=(*_STAGE, "state"),
        help="Key ranges of the stage: owned, awaited (nobody has them) or moving",
        source="ranges.*.state",
        high="ranges that are awaited for long hold event time",
        panel=Panel(
            section="Deliveries", title="Key ranges that nobody has",
            expr='dataflow_ranges{job=~"$job", state!="owned"}', legend="{{job}} {{stage}} {{state}}",
        ),
        samples=read.by_state(
            ("owned", "awaited", "moving"), lambda each: each.state.value, of_sources=False
        ),
    ),
    MetricSpec(
        name="dataflow_range_load_skew_ratio",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="Records of the busiest key range, by the mean of all of them",
        source="ranges.*.records_per_s",
        high="a key is hot, or keys are few: balance=True, or with_hot_key_fanout",
        panel=Panel(
            section="Deliveries", title="Skew of key ranges",
            expr='dataflow_range_load_skew_ratio{job=~"$job"}', legend="{{job}} {{stage}}",
        ),
        samples=read.of_ranges(read.skew),
        alerts=(
            Alert(
                name="DataflowSkew",
                expr="dataflow_range_load_skew_ratio > 4",
                for_="10m",
                severity="info",
                summary="One key range of {{ $labels.stage }} of job {{ $labels.job }} takes in {{ $value }} times the "
                "mean.",
                action="dataflow top {{ $labels.job }} shows its frequent keys.",
            ),
        ),
    ),
)  # fmt: skip

_OF_ENDS = (
    MetricSpec(
        name="dataflow_splits",
        type=MetricType.GAUGE,
        labels=(*_STAGE, "state"),
        help="Splits of the source: active, idle (by the word of their reader) or finished",
        source="ranges.*.is_idle, ranges.*.poll",
        high="an active split without records holds event time; an idle one does not",
        panel=Panel(
            section="Sources", title="Splits", expr='dataflow_splits{job=~"$job"}',
            legend="{{job}} {{stage}} {{state}}",
        ),
        samples=read.by_state(("active", "idle", "finished"), read.split_state, of_sources=True),
    ),
    MetricSpec(
        name="dataflow_source_last_poll_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="When the split was asked for records that was asked longest ago, of those that are not finished",
        source="ranges.*.poll.polled_us",
        high="if it is long ago, its reader hangs, or it has no owner, or its receivers are slow",
        panel=Panel(
            section="Sources", title="Longest time without a poll",
            expr='time() - dataflow_source_last_poll_timestamp_seconds{job=~"$job"}',
            legend="{{job}} {{stage}}", unit="s",
        ),
        samples=read.of_ranges(read.polled),
    ),
    MetricSpec(
        name="dataflow_source_last_record_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="When any split last had a record",
        source="ranges.*.poll.record_us",
        high="if it is long ago and polls are not, the input is quiet",
        panel=Panel(
            section="Sources", title="Time without a record",
            expr='time() - dataflow_source_last_record_timestamp_seconds{job=~"$job"}',
            legend="{{job}} {{stage}}", unit="s",
        ),
        samples=read.of_ranges(read.last_record),
    ),
    MetricSpec(
        name="dataflow_source_backlog_records",
        type=MetricType.GAUGE,
        labels=_STAGE,
        help="Records that wait in the source, as far as it knows",
        source="ranges.*.poll.backlog_records",
        high="the job does not keep up with its input",
        panel=Panel(
            section="Sources", title="Backlog", expr='dataflow_source_backlog_records{job=~"$job"}',
            legend="{{job}} {{stage}}",
        ),
        samples=read.of_ranges(read.backlog),
    ),
    MetricSpec(
        name="dataflow_sink_waiting_rows",
        type=MetricType.GAUGE,
        labels=("job", "outbox"),
        help="Rows that wait for a sink",
        source="dataflow.sink_status.waiting",
        high="the sink is slow or fails; nothing is lost",
        panel=Panel(
            section="Sinks", title="Rows that wait for sinks",
            expr='dataflow_sink_waiting_rows{job=~"$job"}', legend="{{job}} {{outbox}}",
        ),
        samples=read.of_rows(lambda job: job.sinks, "outbox", lambda row: float(row["waiting"])),
    ),
    MetricSpec(
        name="dataflow_sink_oldest_waiting_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=("job", "outbox"),
        help="When the oldest of them was written: all older ones are visible in the sink; missing if none waits",
        source="dataflow.sink_status.oldest",
        high="its age is how far the sink is behind; more than its batches may wait: it is slow or fails",
        panel=Panel(
            section="Sinks", title="Sinks are behind by",
            expr='time() - dataflow_sink_oldest_waiting_timestamp_seconds{job=~"$job"}',
            legend="{{job}} {{outbox}}", unit="s",
        ),
        samples=read.of_rows(
            lambda job: job.sinks, "outbox", lambda row: read.instant(row["oldest"])
        ),
    ),
    MetricSpec(
        name="dataflow_sink_visible_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=("job", "outbox"),
        help="Since when the last batch is known to be visible in the sink, of its lanes the earliest",
        source="dataflow.sink_status.visible_at",
        high="no batch was written for so long; if rows wait, the sink is slow or fails",
        panel=Panel(
            section="Sinks", title="Since the last batch",
            expr='time() - dataflow_sink_visible_timestamp_seconds{job=~"$job"}',
            legend="{{job}} {{outbox}}", unit="s",
        ),
        samples=read.of_rows(
            lambda job: job.sinks, "outbox", lambda row: read.instant(row["visible_at"])
        ),
    ),
    MetricSpec(
        name="dataflow_sink_delay_seconds",
        type=MetricType.GAUGE,
        labels=("job", "outbox"),
        help="How long the first row of the last batch had waited until it was visible, of the lanes the longest",
        source="dataflow.sink_status.visible_at, written_first",
        high="batches are made seldom (max_delay_ms), or the sink takes long to commit",
        panel=Panel(
            section="Sinks", title="From written to visible",
            expr='dataflow_sink_delay_seconds{job=~"$job"}', legend="{{job}} {{outbox}}", unit="s",
        ),
        samples=read.of_rows(lambda job: job.sinks, "outbox", lambda row: row["delay_s"]),
    ),
    MetricSpec(
        name="dataflow_sink_failing_since_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=("job", "outbox"),
        help="Since when a lane of the sink fails; missing if none does",
        source="dataflow.sink_status.failing_since",
        high="the sink cannot be reached, or refuses what it is sent",
        panel=Panel(
            section="Sinks", title="Sinks fail for",
            expr='time() - dataflow_sink_failing_since_timestamp_seconds{job=~"$job"}',
            legend="{{job}} {{outbox}}", unit="s",
        ),
        samples=read.of_rows(
            lambda job: job.sinks, "outbox", lambda row: read.instant(row["failing_since"])
        ),
        alerts=(
            Alert(
                name="DataflowSinkFails",
                expr="time() - dataflow_sink_failing_since_timestamp_seconds > 300",
                for_="0s",
                severity="critical",
                summary="Sink {{ $labels.outbox }} of job {{ $labels.job }} has failed for "
                "{{ $value | humanizeDuration }}.",
                action="dataflow sinks {{ $labels.job }} has the reason; rows are sent when it answers again.",
            ),
        ),
    ),
)  # fmt: skip

_OF_WORKERS = (
    MetricSpec(
        name="dataflow_worker_seconds_total",
        type=MetricType.COUNTER,
        labels=(*_SLOT, "state"),
        help="Time of the worker in the slot since it began: busy, blocked (waiting for a commit) or idle",
        source="workers.*.busy_us, blocked_us, idle_us",
        high="busy near 1 in a second: more workers, or cheaper code; blocked: the store is slow",
        panel=Panel(
            section="Workers", title="Where the time of workers goes",
            expr='sum by (job, state) (rate(dataflow_worker_seconds_total{job=~"$job"}[1m]))',
            legend="{{job}} {{state}}", unit="s",
        ),
        samples=read.worker_times,
        alerts=(
            Alert(
                name="DataflowWorkersBlocked",
                expr='sum by (job) (rate(dataflow_worker_seconds_total{state="blocked"}[5m])) / '
                "sum by (job) (rate(dataflow_worker_seconds_total[5m])) > 0.8",
                for_="10m",
                severity="warning",
                summary="Workers of job {{ $labels.job }} wait for the store {{ $value | humanizePercentage }} of "
                "their time.",
                action="Look at the disk and the load of Postgres.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_commit_seconds",
        type=MetricType.HISTOGRAM,
        labels=_SLOT,
        help="How long the commits of the worker in the slot took, since it began",
        source="workers.*.commits",
        high="the store is slow: its disk, locks, or the way to it",
        panel=Panel(
            section="Workers", title="Commits, 99th percentile",
            expr='histogram_quantile(0.99, sum by (job, le) (rate(dataflow_commit_seconds_bucket{job=~"$job"}[5m])))',
            legend="{{job}}", unit="s",
        ),
        samples=read.of_worker(lambda worker: worker.commits),
        alerts=(
            Alert(
                name="DataflowCommitsSlow",
                expr="histogram_quantile(0.99, sum by (job, le) (rate(dataflow_commit_seconds_bucket[5m]))) > 1",
                for_="5m",
                severity="warning",
                summary="Commits of job {{ $labels.job }} take {{ $value | humanizeDuration }}.",
                action="Look at the disk of Postgres, and at who holds locks.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_worker_step_seconds",
        type=MetricType.GAUGE,
        labels=_SLOT,
        help="For how long the worker has been in one step at its last heartbeat; 0 if it was in none",
        source="workers.*.heartbeat_us, doing.since_us",
        high="user code hangs, or is slow",
        panel=Panel(
            section="Workers", title="Step that workers are in",
            expr='dataflow_worker_step_seconds{job=~"$job"}', legend="{{job}} {{slot}}", unit="s",
        ),
        samples=read.of_worker(read.in_step),
        alerts=(
            Alert(
                name="DataflowWorkerStuck",
                expr="dataflow_worker_step_seconds > 60",
                for_="30s",
                severity="critical",
                summary="The worker in slot {{ $labels.slot }} of job {{ $labels.job }} has been in one step for "
                "{{ $value | humanizeDuration }}.",
                action="dataflow top {{ $labels.job }} names the transform; step_timeout ends code that is too slow.",
            ),
        ),
    ),
    MetricSpec(
        name="dataflow_worker_commit_wait_seconds",
        type=MetricType.GAUGE,
        labels=_SLOT,
        help="For how long the worker has waited for one commit at its last heartbeat; 0 if for none",
        source="workers.*.heartbeat_us, committing_us",
        high="the commit waits for a lock, the disk, or the network",
        panel=Panel(
            section="Workers", title="Commit that workers wait for",
            expr='dataflow_worker_commit_wait_seconds{job=~"$job"}', legend="{{job}} {{slot}}", unit="s",
        ),
        samples=read.of_worker(read.in_commit),
    ),
    MetricSpec(
        name="dataflow_worker_heartbeat_timestamp_seconds",
        type=MetricType.GAUGE,
        labels=_SLOT,
        help="When the driver has last received a heartbeat of the worker's process",
        source="workers.*.heartbeat_received_us",
        high="if it stands still and that of the driver does not, its host or the network is gone",
        panel=Panel(
            section="Workers", title="Age of heartbeats",
            expr='time() - dataflow_worker_heartbeat_timestamp_seconds{job=~"$job"}',
            legend="{{job}} {{slot}}", unit="s",
        ),
        samples=read.of_worker(lambda worker: read.instant(worker.heartbeat_received_us)),
    ),
)  # fmt: skip

_OF_USER_CODE = (
    MetricSpec(
        name="dataflow_user_counter",
        type=MetricType.GAUGE,
        labels=_USER,
        help="What df.Metrics.counter has counted, exactly once, since the job was first run; a gauge, as counters of "
        "user code may be decreased",
        source="dataflow.metrics",
        high="as the code means it; delta() or deriv() of it, and rate() if it only grows",
        panel=Panel(
            section="User code", title="Counters in a second",
            expr='deriv(dataflow_user_counter{job=~"$job"}[1m])', legend=_USER_LEGEND,
        ),
        samples=read.of_user(MetricKind.COUNTER, float),
    ),
    MetricSpec(
        name="dataflow_user_distribution",
        type=MetricType.SUMMARY,
        labels=_USER,
        help="How many values df.Metrics.distribution was given, and their sum",
        source="dataflow.metrics",
        high="as the code means it",
        panel=Panel(
            section="User code", title="Distributions, mean",
            expr='rate(dataflow_user_distribution_sum{job=~"$job"}[5m]) / '
            'rate(dataflow_user_distribution_count{job=~"$job"}[5m])',
            legend=_USER_LEGEND,
        ),
        samples=read.of_user(MetricKind.DISTRIBUTION, lambda found: (found[0], float(found[1]))),
    ),
    MetricSpec(
        name="dataflow_user_distribution_least",
        type=MetricType.GAUGE,
        labels=_USER,
        help="The least value that df.Metrics.distribution was given",
        source="dataflow.metrics",
        high="as the code means it",
        panel=Panel(
            section="User code", title="Distributions, least and greatest",
            expr='dataflow_user_distribution_least{job=~"$job"}', legend=f"{_USER_LEGEND} least",
        ),
        samples=read.of_user(MetricKind.DISTRIBUTION, lambda found: float(found[2])),
    ),
    MetricSpec(
        name="dataflow_user_distribution_greatest",
        type=MetricType.GAUGE,
        labels=_USER,
        help="The greatest value that df.Metrics.distribution was given",
        source="dataflow.metrics",
        high="as the code means it",
        panel=Panel(
            section="User code", title="Distributions, least and greatest",
            expr='dataflow_user_distribution_greatest{job=~"$job"}',
            legend=f"{_USER_LEGEND} greatest",
        ),
        samples=read.of_user(MetricKind.DISTRIBUTION, lambda found: float(found[3])),
    ),
    MetricSpec(
        name="dataflow_user_gauge",
        type=MetricType.GAUGE,
        labels=_USER,
        help="What df.Metrics.gauge was last set to",
        source="dataflow.metrics",
        high="as the code means it",
        panel=Panel(
            section="User code", title="Gauges", expr='dataflow_user_gauge{job=~"$job"}',
            legend=_USER_LEGEND,
        ),
        samples=read.of_user(MetricKind.GAUGE, lambda found: float(found[0])),
    ),
    MetricSpec(
        name="dataflow_user_strings",
        type=MetricType.GAUGE,
        labels=_USER,
        help="How many different texts df.Metrics.string_set has; the texts are no labels",
        source="dataflow.metrics",
        high="as the code means it",
        panel=Panel(
            section="User code", title="Sets of texts", expr='dataflow_user_strings{job=~"$job"}',
            legend=_USER_LEGEND,
        ),
        samples=read.of_user(MetricKind.STRING_SET, lambda found: float(len(found))),
    ),
    MetricSpec(
        name="dataflow_user_metrics_left_out",
        type=MetricType.GAUGE,
        labels=_JOB,
        help=f"Metrics of user code that are not exported, as a job exports its first {USER_METRICS_MAX}",
        source="dataflow.metrics",
        high="names of metrics are made of data: have fewer",
        panel=Panel(
            section="User code", title="Left out", expr='dataflow_user_metrics_left_out{job=~"$job"}',
            legend="{{job}}",
        ),
        samples=read.of_job(lambda job: float(job.user_left_out)),
    ),
)  # fmt: skip

#: All metrics.
METRICS = (*_OF_STORE, *_OF_DRIVER, *_OF_STAGES, *_OF_ENDS, *_OF_WORKERS, *_OF_USER_CODE)
