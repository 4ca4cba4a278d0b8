//! Runs user code so that a panic or an overlong run is a [`Failure`], never more (rule FSM-4).

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Once;
use std::time::Duration;

use futures_util::FutureExt as _;

use crate::error::{Failure, FailureKind};

thread_local! {
    /// Where the last panic on this thread came from. The hook runs on the thread that unwinds, before the
    /// unwinding is caught there.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Adds to the panic hook of the process, once, that the location of a panic is remembered. The hook that was
/// there goes on to run.
fn remember_locations() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            LOCATION.with_borrow_mut(|location| *location = info.location().map(ToString::to_string));
            previous(info);
        }));
    });
}

/// Runs user code to its end, a panic, or its timeout.
pub(crate) async fn run_guarded<T>(
    timeout: Option<Duration>,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    remember_locations();
    let guarded = AssertUnwindSafe(work).catch_unwind();
    let result = match timeout {
        None => guarded.await,
        Some(limit) => match tokio::time::timeout(limit, guarded).await {
            Ok(result) => result,
            Err(_elapsed) => {
                let message = format!("the step ran longer than its timeout of {limit:?}");
                return Err(Failure::new(FailureKind::Timeout, message));
            }
        },
    };
    result.map_err(|panic| {
        let text = panic_text(panic.as_ref());
        let message = match LOCATION.take() {
            Some(location) => format!("the step panicked at {location}: {text}"),
            None => format!("the step panicked: {text}"),
        };
        Failure::new(FailureKind::Panic, message)
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_tells_its_message_and_place() {
        // contract: FSM-4
        let failure = run_guarded(None, async { panic!("boom {}", 7) })
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::Panic);
        assert!(
            failure.message.contains("boom 7") && failure.message.contains("panic.rs"),
            "{failure}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_overlong_run_is_a_timeout() {
        // contract: FSM-4
        let limit = Duration::from_secs(5);
        let failure = run_guarded(Some(limit), std::future::pending::<()>())
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
    }
}
