//! Pokes over Pub/Sub of Redis.

use std::fmt;
use std::pin::Pin;

use async_trait::async_trait;
use durable_core::poke::{Link, Message, Node, PokeError, PokeReceiver, PokeSender, PokeTransport, Received};
use futures_util::{Stream, StreamExt as _};

use crate::channel::Channel;

/// Carries pokes through a Redis server: one connection subscribes, one publishes. Nothing is kept there.
#[derive(Debug)]
pub struct RedisPokes {
    channel: Channel,
}

impl RedisPokes {
    /// Pokes through the server at this address, on the channel `durable_pokes`. It connects when an engine uses it.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            channel: Channel::new(url.into()),
        }
    }

    /// Another channel. Several stores may share one: they look once too often, no more.
    #[must_use]
    pub fn channel(self, channel: impl Into<String>) -> Self {
        Self {
            channel: self.channel.named(channel.into()),
        }
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

    async fn connect(&self, _node: &Node) -> Result<Link, PokeError> {
        let client = redis::Client::open(self.channel.url.as_str()).map_err(failed)?;
        let mut listener = client.get_async_pubsub().await.map_err(failed)?;
        listener.subscribe(&self.channel.name).await.map_err(failed)?;
        let connection = client.get_multiplexed_async_connection().await.map_err(failed)?;
        let channel = self.channel.name.clone();
        Ok(Link {
            sender: Box::new(Sender { connection, channel }),
            receiver: Box::new(Receiver(Box::pin(listener.into_on_message()))),
            echoes: true,
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
    async fn receive(&mut self) -> Result<Received, PokeError> {
        match self.0.next().await {
            Some(message) => Ok(Received::Message(message.get_payload_bytes().to_vec())),
            None => Err(failed("the connection that subscribes was lost")),
        }
    }
}
