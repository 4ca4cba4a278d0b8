//! Pokes over Pub/Sub of Redis.

use std::fmt;
use std::pin::Pin;

use async_trait::async_trait;
use durable_core::poke::{Link, Message, PokeError, PokeReceiver, PokeSender, PokeTransport};
use futures_util::{Stream, StreamExt as _};

/// The channel, unless told otherwise.
const CHANNEL: &str = "durable_pokes";

/// Carries pokes through a Redis server: one connection subscribes, one publishes. Nothing is kept there.
pub struct RedisPokes {
    url: String,
    channel: String,
}

impl RedisPokes {
    /// Pokes through the server at this address, on the channel `durable_pokes`. It connects when an engine uses it.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            channel: CHANNEL.to_owned(),
        }
    }

    /// Another channel. Several stores may share one: they look once too often, no more.
    #[must_use]
    pub fn channel(mut self, channel: impl Into<String>) -> Self {
        self.channel = channel.into();
        self
    }
}

/// Without the password.
impl fmt::Debug for RedisPokes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RedisPokes")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

fn failed(message: impl fmt::Display) -> PokeError {
    PokeError {
        transport: "redis",
        message: message.to_string(),
    }
}

#[async_trait]
impl PokeTransport for RedisPokes {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn connect(&self) -> Result<Link, PokeError> {
        let client = redis::Client::open(self.url.as_str()).map_err(failed)?;
        let mut listener = client.get_async_pubsub().await.map_err(failed)?;
        listener.subscribe(&self.channel).await.map_err(failed)?;
        let connection = client.get_multiplexed_async_connection().await.map_err(failed)?;
        let channel = self.channel.clone();
        Ok(Link {
            sender: Box::new(Sender { connection, channel }),
            receiver: Box::new(Receiver(Box::pin(listener.into_on_message()))),
        })
    }
}

struct Sender {
    connection: redis::aio::MultiplexedConnection,
    channel: String,
}

#[async_trait]
impl PokeSender for Sender {
    async fn send(&mut self, message: &Message) -> Result<(), PokeError> {
        redis::cmd("PUBLISH")
            .arg(&self.channel)
            .arg(message.encode())
            .query_async::<()>(&mut self.connection)
            .await
            .map_err(failed)
    }
}

struct Receiver(Pin<Box<dyn Stream<Item = redis::Msg> + Send>>);

#[async_trait]
impl PokeReceiver for Receiver {
    async fn receive(&mut self) -> Result<Vec<u8>, PokeError> {
        match self.0.next().await {
            Some(message) => Ok(message.get_payload_bytes().to_vec()),
            None => Err(failed("the connection that subscribes was lost")),
        }
    }
}
