-- Lists of the traces that failed or were stopped, which are few of many.
CREATE INDEX trace_unsuccessful ON trace_state (status, trace_key) WHERE status = 'failed' OR status = 'stopped';
