//! Signals: durable messages to instances.

use std::borrow::Cow;

use serde::Serialize;

use super::{Client, no_answer};
use crate::error::{DeliverError, EncodeError, InvalidValue};
use crate::store::{NewSignal, SignalFate, Target};
use crate::types::{CorrelationKey, DeduplicationKey, Json, SignalName};

impl Target {
    /// The instance that holds this correlation key when the call is made.
    ///
    /// # Errors
    /// [`InvalidValue`] for a key that no instance can have.
    pub fn key(key: impl Into<Cow<'static, str>>) -> Result<Self, InvalidValue> {
        CorrelationKey::new(key).map(Self::Key)
    }
}

/// A signal to send: whom to, its name, what it says.
///
/// Values out of range are refused when it is sent, before anything is written.
///
/// ```
/// # use durable_core::{Client, DeliverError, InstanceId, SendSignal, SignalFate};
/// # async fn example(client: &Client, order: InstanceId) -> Result<(), DeliverError> {
/// let paid = SendSignal::new(order, "paid", &4_200).deduplication_key("payment-17");
/// match client.send(paid).await? {
///     SignalFate::Stored(id) | SignalFate::Duplicate(id) => println!("{id} has it"),
///     SignalFate::NoTarget => println!("the order is finished, or not there"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it is sent by Client::send"]
pub struct SendSignal {
    target: Target,
    name: Cow<'static, str>,
    payload: Result<Json, EncodeError>,
    deduplication_key: Option<Cow<'static, str>>,
}

impl SendSignal {
    /// A signal to an instance, by its id or by its correlation key ([`Target::key`]).
    pub fn new<T: Serialize + ?Sized>(
        target: impl Into<Target>,
        name: impl Into<Cow<'static, str>>,
        payload: &T,
    ) -> Self {
        Self {
            target: target.into(),
            name: name.into(),
            payload: Json::encode(payload),
            deduplication_key: None,
        }
    }

    /// Makes a second delivery to the same instance do nothing, also when the first was read long ago. Give one that
    /// says what the signal is about, so that sending it again is safe.
    pub fn deduplication_key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.deduplication_key = Some(key.into());
        self
    }

    /// Checks everything and gives the form that a store takes. [`Client::send`] calls it.
    ///
    /// # Errors
    /// [`DeliverError`], naming the first field that is out of range, or why the payload cannot be stored.
    pub fn encode(self) -> Result<NewSignal, DeliverError> {
        let name = SignalName::new(self.name)?;
        let payload = self.payload.map_err(|source| DeliverError::Payload {
            name: name.to_string(),
            source,
        })?;
        Ok(NewSignal {
            target: self.target,
            name,
            payload,
            deduplication_key: self.deduplication_key.map(DeduplicationKey::new).transpose()?,
        })
    }
}

impl Client {
    /// Sends a signal to an instance, by its id or by its correlation key ([`Target::key`]), and pokes its queue in this
    /// process if it waited for it. The answer says whether it is stored; once it is, it is not lost (rule SIG-1).
    ///
    /// # Errors
    /// [`DeliverError`]; then nothing was written, save after [`StoreError::Unknown`](crate::StoreError::Unknown):
    /// [`SendSignal::deduplication_key`] makes a second try safe.
    pub async fn signal<T: Serialize + ?Sized>(
        &self,
        target: impl Into<Target>,
        name: impl Into<Cow<'static, str>>,
        payload: &T,
    ) -> Result<SignalFate, DeliverError> {
        self.send(SendSignal::new(target, name, payload)).await
    }

    /// Sends a signal with options; see [`signal`](Self::signal).
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub async fn send(&self, signal: SendSignal) -> Result<SignalFate, DeliverError> {
        let fates = self.signal_all([signal]).await?;
        let fate = fates.into_iter().next();
        fate.ok_or_else(|| no_answer("a signal").into())
    }

    /// Sends a batch of any size in one call; the answers stand in the caller's order. Of several signals to one
    /// instance, its inbox keeps the order.
    ///
    /// # Errors
    /// As [`signal`](Self::signal), for the first with a fault; then none was delivered.
    pub async fn signal_all(
        &self,
        signals: impl IntoIterator<Item = SendSignal>,
    ) -> Result<Vec<SignalFate>, DeliverError> {
        let signals = signals
            .into_iter()
            .map(SendSignal::encode)
            .collect::<Result<Vec<_>, _>>()?;
        if signals.is_empty() {
            return Ok(Vec::new());
        }
        let delivered = self.store.deliver(signals).await?;
        delivered.woken.iter().for_each(|queue| self.local.poke(queue));
        Ok(delivered.fates)
    }
}
