//! Whether what is sent over a connection comes back: a connection may be dead for long without either end knowing.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// After so long without anything sent, something is, for its echo.
const QUIET: Duration = Duration::from_secs(30);
/// How long an echo may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The echo of one connection.
pub(crate) struct Echo(watch::Sender<State>);

#[derive(Clone, Copy)]
struct State {
    last_sent: Instant,
    /// Since when the first echo is waited for.
    waiting: Option<Instant>,
}

impl Default for Echo {
    fn default() -> Self {
        let state = State {
            last_sent: Instant::now(),
            waiting: None,
        };
        Self(watch::Sender::new(state))
    }
}

impl Echo {
    /// Something is about to be sent.
    pub(crate) fn sent(&self) {
        let now = Instant::now();
        self.0.send_modify(|state| {
            state.last_sent = now;
            state.waiting.get_or_insert(now);
        });
    }

    /// Something came back.
    pub(crate) fn heard(&self) {
        self.0.send_modify(|state| state.waiting = None);
    }

    /// Resolves when something should be sent for its echo.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn wanted(&self) {
        let last_sent = self.0.borrow().last_sent;
        sleep_until(last_sent + QUIET).await;
    }

    /// Resolves when an echo did not come in time.
    pub(crate) async fn missed(&self) {
        let mut state = self.0.subscribe();
        loop {
            let waiting = state.borrow_and_update().waiting;
            let missed = async {
                match waiting {
                    Some(since) => sleep_until(since + WITHIN).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = state.changed() => {}
                () = missed => return,
            }
        }
    }
}
