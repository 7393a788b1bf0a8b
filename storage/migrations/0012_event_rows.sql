-- A row of events holds consecutive events of one append (sqlite/event_rows.rs). An index can therefore no longer find
-- goal changes by comparing `kind`: the row says whether one of its events is such a change.
ALTER TABLE event ADD COLUMN changes_goals INTEGER NOT NULL DEFAULT 0;
UPDATE event SET changes_goals = 1
    WHERE kind = 'goal_added' OR kind = 'goal_updated' OR kind = 'goal_focused' OR kind = 'rewind'
       OR kind = 'head_switched' OR kind = 'session_forked';
DROP INDEX event_of_goals;
CREATE INDEX event_of_goals ON event (trace_key, event_id) WHERE changes_goals;
