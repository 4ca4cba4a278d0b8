//! A channel of a server: what the transports over a server are made of.

use std::fmt;

/// The channel, unless told otherwise.
const NAME: &str = "durable_pokes";

pub(crate) struct Channel {
    /// May hold a password.
    pub(crate) url: String,
    pub(crate) name: String,
}

impl Channel {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            name: NAME.to_owned(),
        }
    }

    pub(crate) fn named(self, name: String) -> Self {
        Self { name, ..self }
    }
}

/// Without the address.
impl fmt::Debug for Channel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, formatter)
    }
}
