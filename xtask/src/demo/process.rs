//! A worker process as its parent sees it.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};

use super::place::Place;
use super::worker::Task;

/// How long a worker may take to end by itself before it is killed.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A running worker. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) process_id: u32,
    child: Child,
    /// Its end ends the worker.
    input: ChildStdin,
}

impl Worker {
    /// Starts this very program again as a worker.
    pub(super) async fn start(name: &str, place: &Place) -> anyhow::Result<Self> {
        let task = Task {
            name: name.to_owned(),
            url: place.url.clone(),
            schema: place.schema.clone(),
        };
        let program = std::env::current_exe().context("finding this program")?;
        let mut child = Command::new(program)
            .arg("demo-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Out of reach of an interrupt from the terminal: its parent decides.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let process_id = child.id().context("a worker ended at once")?;
        let mut input = child.stdin.take().context("a worker has no standard input")?;
        // By pipe and not as an argument: an address may hold a password, and arguments are public.
        let mut line = serde_json::to_string(&task)?;
        line.push('\n');
        input.write_all(line.as_bytes()).await?;
        Ok(Self {
            name: name.to_owned(),
            process_id,
            child,
            input,
        })
    }

    /// How the worker ended, if it has.
    pub(super) fn has_ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills the worker with SIGKILL, and waits until it is gone.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        let killed = self.child.kill().await;
        killed.with_context(|| format!("killing {}", self.name))
    }

    /// Lets the worker end by itself.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        let Self {
            name,
            mut child,
            input,
            ..
        } = self;
        drop(input);
        let status = tokio::time::timeout(END_WITHIN, child.wait()).await;
        let status = status.with_context(|| format!("{name} did not end within {END_WITHIN:?}"))??;
        anyhow::ensure!(status.success(), "{name} ended with {status}");
        Ok(())
    }
}
