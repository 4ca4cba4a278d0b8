//! Random histories of calls, on which two stores must agree: the model, and the store under test.
//!
//! A history comes from a seed ([`generate`]). [`check`] plays it on both stores, call by call, and compares
//! the answers; ids are named by when they came, and of times only whether they have come is compared. When
//! the answers differ, the history is made as short as it can be, and printed with the answers.
//!
//! ```text
//! let model = async || Arc::new(MemoryStore::new()) as Arc<dyn Store>;
//! let subject = async || fresh_postgres().await;
//! if let Err(disagreement) = check(Settings::from_environment(), model, subject).await {
//!     panic!("{disagreement}");
//! }
//! ```
//!
//! The calls come one after another: what races is for other tests. Rows that somebody else holds are not
//! part of a history, so nothing but the history may use the stores.

mod call;
mod generate;
mod player;
mod shrink;
mod vocabulary;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use durable_core::Store;

pub use call::{Act, Call, Change, Entry, Outcome, Pick, Sent, Timeout, Whom};
pub use generate::generate;
use player::Player;

/// Which histories to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The seed of the first history; each one after it has the next.
    pub first_seed: u64,
    /// How many histories.
    pub histories: u64,
    /// How many calls each has.
    pub calls: usize,
}

impl Default for Settings {
    /// 200 histories of 80 calls, from seed 1: the same in every run, so that a failure is about a change.
    fn default() -> Self {
        Self {
            first_seed: 1,
            histories: 200,
            calls: 80,
        }
    }
}

impl Settings {
    /// The defaults, unless the environment says otherwise: `DURABLE_HISTORY_SEED` plays the history of one
    /// seed, `DURABLE_HISTORIES` plays that many, from seed 1, or from that seed if both are given. Panics on
    /// a value that is not a number.
    #[must_use]
    pub fn from_environment() -> Self {
        let number = |name: &str| {
            std::env::var(name).ok().map(|text| {
                text.parse()
                    .unwrap_or_else(|_| panic!("{name} is \"{text}\"; give a whole number"))
            })
        };
        let (seed, histories) = (number("DURABLE_HISTORY_SEED"), number("DURABLE_HISTORIES"));
        let default = Self::default();
        Self {
            first_seed: seed.unwrap_or(default.first_seed),
            histories: histories.unwrap_or(if seed.is_some() { 1 } else { default.histories }),
            ..default
        }
    }
}

/// How often each word came in the answers to each kind of call: what the histories have reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached(BTreeMap<(&'static str, String), u64>);

impl Reached {
    /// How often a word came in the answers to a kind of call, as [`Call::name`] names it.
    #[must_use]
    pub fn count(&self, call: &'static str, word: &str) -> u64 {
        self.0.get(&(call, word.to_owned())).copied().unwrap_or(0)
    }

    fn note(&mut self, call: &Call, answer: &str) {
        for word in answer.split(|letter: char| !letter.is_alphanumeric()) {
            *self.0.entry((call.name(), word.to_owned())).or_default() += 1;
        }
    }
}

/// Two stores that answered differently: the shortest history found, with the last answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The seed of the history that it was found with.
    pub seed: u64,
    /// The calls; the stores answered the last one differently.
    pub history: Vec<Call>,
    /// What the model answered last.
    pub model: String,
    /// What the store under test answered last.
    pub subject: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "the model and the store disagree; DURABLE_HISTORY_SEED={} plays it again\n",
            self.seed
        )?;
        for (number, call) in self.history.iter().enumerate() {
            writeln!(formatter, "  {number:>2}  {call}")?;
        }
        writeln!(formatter, "\nthe last answers, where they differ:")?;
        let (model, subject): (Vec<_>, Vec<_>) =
            (self.model.lines().collect(), self.subject.lines().collect());
        for at in 0..model.len().max(subject.len()) {
            let (model, subject) = (model.get(at), subject.get(at));
            if model != subject {
                writeln!(formatter, "  model: {}", model.unwrap_or(&"-"))?;
                writeln!(formatter, "  store: {}", subject.unwrap_or(&"-"))?;
            }
        }
        Ok(())
    }
}

/// Plays the histories on a model and a store, each history on fresh ones, and says what they reached.
///
/// # Errors
/// The first [`Disagreement`], shrunk.
pub async fn check(
    settings: Settings,
    model: impl AsyncFn() -> Arc<dyn Store>,
    subject: impl AsyncFn() -> Arc<dyn Store>,
) -> Result<Reached, Box<Disagreement>> {
    let mut reached = Reached::default();
    for seed in (settings.first_seed..).take(usize::try_from(settings.histories).unwrap_or(usize::MAX)) {
        let history = generate(seed, settings.calls);
        let (one, two) = (model().await, subject().await);
        if let Some(difference) = play(&history, one, two, &mut reached).await {
            let (history, difference) = shrink::shrink(history, difference, &model, &subject).await;
            return Err(Box::new(Disagreement {
                seed,
                history,
                model: difference.model,
                subject: difference.subject,
            }));
        }
    }
    Ok(reached)
}

/// Where two stores answered differently.
struct Difference {
    /// The position of the call; that behind the last one stands for the look at the end.
    at: usize,
    model: String,
    subject: String,
}

/// Plays one history on both, up to the first difference; at the end all instances are compared.
async fn play(
    history: &[Call],
    model: Arc<dyn Store>,
    subject: Arc<dyn Store>,
    reached: &mut Reached,
) -> Option<Difference> {
    let (mut model, mut subject) = match (Player::begin(model).await, Player::begin(subject).await) {
        (Ok(model), Ok(subject)) => (model, subject),
        (model, subject) => {
            let said = |error: Option<durable_core::StoreError>| {
                error.map_or_else(|| "began".to_owned(), |error| error.to_string())
            };
            return Some(Difference {
                at: 0,
                model: said(model.err()),
                subject: said(subject.err()),
            });
        }
    };
    for (at, call) in history.iter().chain([&Call::Snapshots]).enumerate() {
        let (model, subject) = (model.play(call).await, subject.play(call).await);
        if model != subject {
            return Some(Difference { at, model, subject });
        }
        reached.note(call, &model);
    }
    None
}
