//! The statements that run for every batch, with arguments for the rows of [`crate::filled`].

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use crate::filled::run;
use crate::plan::Plan;

/// One statement of the store, and what it may cost.
pub(crate) struct HotStatement {
    /// The name under which it is prepared.
    pub(crate) name: &'static str,
    sql: &'static str,
    /// The arguments of `EXECUTE`, in parentheses, if there are any.
    arguments: &'static str,
    /// The indexes that it probes, as its comment says.
    indexes: &'static [&'static str],
    /// The most pages that it may touch, writes included.
    most_buffers: u64,
}

impl HotStatement {
    pub(crate) async fn prepare(&self, connection: &mut PgConnection) {
        run(connection, &format!("PREPARE {} AS {}", self.name, self.sql)).await;
    }

    /// Runs the prepared statement, undoes what it did, and answers how it went about it.
    pub(crate) async fn explain(&self, connection: &mut PgConnection) -> Plan {
        let mut transaction = connection.begin().await.expect("begun");
        let explain = format!(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {}{}",
            self.name, self.arguments
        );
        let explained = sqlx::raw_sql(AssertSqlSafe(explain))
            .fetch_one(&mut *transaction)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        // The column is of type json, which the driver, as built here, does not read as text by itself.
        let text: String = explained.try_get_unchecked(0).expect("a plan");
        transaction.rollback().await.expect("rolled back");
        Plan::new(&serde_json::from_str(&text).expect("JSON"))
    }

    /// What is wrong with a plan of this statement.
    pub(crate) fn faults(&self, plan: &Plan) -> Vec<String> {
        let mut faults = plan.faults();
        let probed = plan.probed_indexes();
        for index in self.indexes {
            if !probed.iter().any(|probed| probed == index) {
                faults.push(format!("{index} is not probed"));
            }
        }
        let buffers = plan.buffers();
        if buffers > self.most_buffers {
            faults.push(format!("{buffers} pages, more than {}", self.most_buffers));
        }
        faults
    }
}

macro_rules! hot {
    ($name:ident = $file:literal, $arguments:expr, $indexes:expr, $most:literal) => {
        HotStatement {
            name: stringify!($name),
            sql: include_str!(concat!("../src/sql/", $file, ".sql")),
            arguments: $arguments,
            indexes: &$indexes,
            most_buffers: $most,
        }
    };
}

/// Inserts of ten, which also run on connections of callers.
pub(crate) const INSERTS: [HotStatement; 2] = [
    hot!(
        insert_ten = "insert",
        "(array_fill(1, '{10}'), array_fill(0::smallint, '{10}'), array_fill(0::bigint, '{10}'), \
         array_fill(NULL::bigint, '{10}'), array_fill('run'::text, '{10}'), array_fill('{}'::text, '{10}'), \
         array_fill(NULL::text, '{10}'), array_fill(NULL::text, '{10}'), NULL, NULL, NULL, NULL, NULL)",
        [],
        100
    ),
    hot!(
        insert_ten_with_keys = "insert",
        "(array_fill(1, '{10}'), array_fill(0::smallint, '{10}'), array_fill(3600000000::bigint, '{10}'), \
         array_fill(NULL::bigint, '{10}'), array_fill('run'::text, '{10}'), array_fill('{}'::text, '{10}'), \
         '{key-1000010,key-1000020,a,b,c,d,e,f,g,h}', array_fill(NULL::text, '{10}'), NULL, NULL, NULL, NULL, NULL)",
        ["instances_correlation_guard"],
        160
    ),
];

/// All others.
pub(crate) const OTHERS: [HotStatement; 32] = [
    hot!(
        claim_from_one_lane = "claim",
        "(1, 900000001, '{1}', 10, NULL, NULL, NULL, NULL)",
        ["instances_pkey", "ready_pkey", "scheduled_pkey", "workers_pkey"],
        150
    ),
    hot!(
        claim_from_two_lanes = "claim",
        "(1, 900000001, '{1,2}', 10, NULL, NULL, NULL, NULL)",
        ["instances_pkey", "ready_pkey", "scheduled_pkey", "workers_pkey"],
        170
    ),
    hot!(
        claim_nothing = "claim",
        "(1, 900000001, '{4,900}', 10, NULL, NULL, NULL, NULL)",
        ["instances_pkey", "ready_pkey", "scheduled_pkey", "workers_pkey"],
        30
    ),
    hot!(
        commit_ten = "commit",
        "(1, '{6000001,6000002,6000003,6000004,6000005,6000006,6000007,6000008,6000009,6000021}', \
         '{1,1,1,1,1,1,1,1,1,2}', array_fill(0, '{10}'), \
         '{next,next,retry,retry,done,done,done,failed,cancelled,give_back}', \
         '{pay,pay,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL}', \
         '{\"{}\",\"{}\",NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL}', \
         '{0,0,1000000,1000000,NULL,NULL,NULL,NULL,NULL,NULL}', array_fill(NULL::text, '{10}'), \
         array_fill(NULL::text, '{10}'), '{3,4}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        ["claims_pkey", "instances_pkey"],
        150
    ),
    // Five with parents, signals, waits and children; two of them end, and their parents are locked and counted down.
    hot!(
        commit_coordinated = "commit",
        "(1, '{6000001,6000002,6000003,6000004,6000005}', '{1,1,1,1,1}', array_fill(0, '{5}'), \
         '{ahead,await,schedule_children,done,cancelled}', '{pay,pay,pay,NULL,NULL}', '{\"{}\",\"{}\",\"{}\",NULL,NULL}', \
         array_fill(0::bigint, '{5}'), array_fill(NULL::text, '{5}'), array_fill(NULL::text, '{5}'), '{}', \
         '{NULL,NULL,NULL,9000001,9000002}', '{0,1,1,1,1}', '{NULL,\"{go}\",NULL,NULL,NULL}', \
         '{NULL,1000000,1000000,NULL,NULL}', array_fill(NULL::integer, '{5}'), '{9000001,9000002}', 900000001, NULL, NULL, NULL, NULL)",
        [
            "claims_pkey",
            "deadlines_pkey",
            "instances_pkey",
            "signal_keys_pkey",
            "signals_pkey"
        ],
        150
    ),
    hot!(
        claim_coordinated = "claim",
        "(1, 900000001, '{5}', 10, NULL, NULL, NULL, NULL)",
        [
            "instances_parent",
            "instances_pkey",
            "lanes_pkey",
            "ready_pkey",
            "signals_pkey"
        ],
        400
    ),
    hot!(
        expire_ten = "expire",
        "(10)",
        ["deadlines_pkey", "instances_pkey", "lanes_pkey"],
        260
    ),
    hot!(
        deliver_two = "deliver",
        "('{9000001,NULL}', '{NULL,key-9000010}', '{go,go}', '{1,1}', '{new,key}')",
        ["instances_correlation_guard"],
        150
    ),
    hot!(
        take_out_three = "take_out",
        "('{1000001,4000001,9000001}', '{}')",
        ["deadlines_pkey", "instances_pkey", "ready_pkey", "scheduled_pkey"],
        60
    ),
    hot!(
        wake_two = "wake",
        "('{9000001,9000002}', false)",
        ["deadlines_pkey", "instances_pkey"],
        60
    ),
    hot!(
        retry_two_now = "retry_now",
        "('{4000001,4000002}')",
        ["instances_pkey", "scheduled_pkey"],
        60
    ),
    hot!(
        restart_two = "restart",
        "('{8000001,8000002}')",
        ["instances_correlation_guard", "instances_pkey"],
        60
    ),
    hot!(
        fan_out_two = "fan_out",
        "('{6000001,6000002}', '{NULL,1}', '{3,0}')",
        ["instances_pkey"],
        60
    ),
    hot!(
        lock_three = "lock_instances",
        "('{9000001,9000002,1000001}', true)",
        ["instances_pkey"],
        50
    ),
    hot!(
        resolve_two_keys = "resolve_keys",
        "('{key-9000010,nobody}')",
        ["instances_correlation_guard"],
        15
    ),
    hot!(
        three_standings = "standings",
        "('{1000001,4000001,9000001}')",
        ["instances_pkey", "lanes_pkey", "ready_pkey", "scheduled_pkey"],
        40
    ),
    hot!(
        three_settlements = "settlements",
        "('{1000001,8000001,9000001}')",
        ["instances_pkey"],
        15
    ),
    hot!(
        heartbeat = "heartbeat",
        "(2, 15000000)",
        ["claims_pkey", "workers_pkey"],
        5
    ),
    hot!(
        heartbeat_holding_all = "heartbeat",
        "(1, 15000000)",
        ["claims_pkey", "workers_pkey"],
        600
    ),
    hot!(
        promote_ten = "promote",
        "('{4}', '{NULL}', 10)",
        ["scheduled_pkey"],
        100
    ),
    hot!(
        take_back_twenty = "take_back",
        "('{2}', '{1}', 1::smallint)",
        ["claims_pkey", "instances_pkey"],
        250
    ),
    hot!(dead_claims = "dead_claims", "(20)", ["claims_pkey"], 40),
    hot!(
        delete_dead_workers = "delete_dead_workers",
        "",
        ["claims_pkey", "workers_pkey"],
        20
    ),
    hot!(retire = "retire", "(1)", ["claims_pkey", "workers_pkey"], 15),
    hot!(
        collect_twenty = "collect",
        "(0, 0, 0, 20)",
        ["finished_pkey", "finished_status_finished_at", "instances_pkey"],
        320
    ),
    hot!(
        ten_snapshots = "snapshots",
        "('{1000001,1000002,3000001,4000001,4000002,6000001,6000002,7000001,8000001,8000002}')",
        ["instances_pkey", "lanes_pkey", "ready_pkey", "scheduled_pkey"],
        120
    ),
    hot!(
        find = "find",
        "('key-1000010')",
        ["instances_correlation_guard"],
        6
    ),
    hot!(
        find_holders = "find_holders",
        "('{key-1000010,key-1000020,nobody}')",
        ["instances_correlation_guard"],
        15
    ),
    hot!(
        make_due_ten = "make_due",
        "('{4}')",
        ["instances_pkey", "scheduled_pkey"],
        120
    ),
    hot!(
        unfinished_children = "unfinished_children",
        "('{10000001}')",
        ["instances_parent"],
        20
    ),
    hot!(lock_claims = "lock_claims", "(1, '{1,2,3}')", ["claims_pkey"], 20),
    hot!(
        fencing_numbers = "fencing_numbers",
        "('{6000001,6000002,6000003}')",
        ["instances_pkey"],
        15
    ),
];

/// Larger batches, as [`crate::million`] compares them.
pub(crate) const LARGE: [HotStatement; 7] = [
    hot!(
        claim_a_hundred_from_one_lane = "claim",
        "(1, 900000001, '{1}', 100, NULL, NULL, NULL, NULL)",
        ["ready_pkey"],
        1200
    ),
    hot!(
        claim_a_hundred_from_two_lanes = "claim",
        "(1, 900000001, '{1,2}', 100, NULL, NULL, NULL, NULL)",
        ["ready_pkey"],
        1150
    ),
    hot!(
        claim_nothing_at_all = "claim",
        "(1, 900000001, '{900}', 100, NULL, NULL, NULL, NULL)",
        ["ready_pkey"],
        15
    ),
    hot!(
        commit_twenty = "commit",
        "(1, '{6000001,6000002,6000003,6000004,6000005,6000006,6000007,6000008,6000009,6000010, \
         6000011,6000012,6000013,6000014,6000015,6000016,6000017,6000018,6000019,6000020}', array_fill(1::bigint, '{20}'), array_fill(0, '{20}'), array_fill('done'::text, '{20}'), \
         array_fill(NULL::text, '{20}'), array_fill(NULL::text, '{20}'), array_fill(NULL::bigint, '{20}'), \
         array_fill('1'::text, '{20}'), array_fill(NULL::text, '{20}'), '{2}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        ["claims_pkey", "instances_pkey"],
        320
    ),
    hot!(
        take_back_a_hundred = "take_back",
        "('{2,2,2,2,2}', '{1,2,3,4,5}', 1::smallint)",
        ["claims_pkey", "instances_pkey"],
        1500
    ),
    hot!(
        collect_a_hundred = "collect",
        "(0, 0, 0, 100)",
        ["finished_pkey", "instances_pkey"],
        1900
    ),
    hot!(
        twenty_snapshots = "snapshots",
        "('{6000001,6000002,6000003,6000004,6000005,6000006,6000007,6000008,6000009,6000010, \
         6000011,6000012,6000013,6000014,6000015,6000016,6000017,6000018,6000019,6000020}')",
        ["instances_pkey"],
        270
    ),
];
