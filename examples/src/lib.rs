//! What the examples and the guides share. The examples are the programs beside this crate; the snippets of the
//! README and of the guides are compiled here as documentation tests.

#![warn(missing_docs)]

pub mod shop;

/// The address of the database that an example runs on, from the environment variable `DATABASE_URL`.
///
/// # Errors
/// When it is not set; the error says what to set it to.
pub fn database_url() -> anyhow::Result<String> {
    std::env::var("DATABASE_URL").map_err(|_missing| {
        anyhow::anyhow!(
            "DATABASE_URL is not set: give the address of a Postgres database to run this example on, for \
             instance DATABASE_URL=postgres://postgres@localhost/postgres; it makes the schema \"durable\" there"
        )
    })
}

/// Each page is a module of its own, so that a snippet that does not compile is found by its name.
macro_rules! pages {
    ($($name:ident: $path:literal),+ $(,)?) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!($path)]
            pub mod $name {}
        )+
    };
}

pages!(
    readme: "../../README.md",
    guide_machines: "../../docs/guides/machines.md",
    guide_jobs: "../../docs/guides/jobs.md",
    guide_scheduling_and_queues: "../../docs/guides/scheduling-and-queues.md",
    guide_signals_and_waiting: "../../docs/guides/signals-and-waiting.md",
    guide_children: "../../docs/guides/children.md",
    guide_results: "../../docs/guides/results.md",
    guide_cancellation_and_operators: "../../docs/guides/cancellation-and-operators.md",
    guide_exactly_once: "../../docs/guides/exactly-once.md",
    guide_topologies: "../../docs/guides/topologies.md",
    guide_testing: "../../docs/guides/testing.md",
    guide_simulation: "../../docs/guides/simulation.md",
    guide_operation: "../../docs/guides/operation.md",
);
