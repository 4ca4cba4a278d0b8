-- Lets a test hold a call of the store in the middle: at the first row that it writes, or just before it commits. Only
-- the sessions that are marked as held stop there, until the director lets go of the advisory lock.
CREATE SCHEMA stage;

CREATE TABLE stage.pause (moment text NOT NULL);
INSERT INTO stage.pause VALUES ('never');

CREATE FUNCTION stage.pause()
RETURNS trigger
LANGUAGE plpgsql
SET lock_timeout = 0
AS $$
BEGIN
    IF current_setting('stage.session', true) = 'held' AND TG_ARGV[0] = (SELECT moment FROM stage.pause) THEN
        PERFORM pg_advisory_xact_lock_shared(1);
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER at_write BEFORE INSERT OR UPDATE ON durable.instances
    FOR EACH ROW EXECUTE FUNCTION stage.pause('write');
CREATE TRIGGER at_write BEFORE INSERT ON durable.claims
    FOR EACH ROW EXECUTE FUNCTION stage.pause('write');
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON durable.instances
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stage.pause('commit');
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON durable.claims
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stage.pause('commit');
