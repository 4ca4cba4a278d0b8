//! The form of a datagram, and what of it is believed (rule POKE-6).
//!
//! ```text
//! form | kind | secret | from | to | made at | number | body ... | HMAC-SHA256 of all before
//!   1  |  1   |   8    |  8   | 8  |    8    |   8    |          | 32 bytes
//! ```
//!
//! Numbers are big-endian; times are milliseconds of the store's clock. Each names its receiver, so that it is worth
//! nothing to another node, or to the same one after a restart.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The form that this program speaks.
const FORM: u8 = 1;
const HEADER: usize = 42;
const TAG: usize = 32;
/// What a datagram should not be larger than: it then passes every usual network in one piece.
const USUAL: usize = 1_200;
/// What a datagram may not be larger than.
pub(super) const LARGEST: usize = durable_core::poke::LARGEST_MESSAGE + HEADER + TAG;
/// What a body should not be larger than.
pub(super) const USUAL_BODY: usize = USUAL - HEADER - TAG;

/// What a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The body is a message of pokes.
    Pokes = 1,
    /// The sender has something new to say of itself in the store: the body is the version of it.
    Hello = 2,
}

/// Why a datagram is dropped, as metrics call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drop {
    /// Larger than any that is sent.
    Oversized,
    /// Not of this form.
    Malformed,
    /// For another node: mostly one that was here before.
    Stray,
    /// Not made with a secret that is valid.
    Forged,
    /// Made too long ago, or in the future.
    Stale,
    /// Here before.
    Replayed,
}

impl Drop {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Oversized => "oversized",
            Self::Malformed => "malformed",
            Self::Stray => "stray",
            Self::Forged => "forged",
            Self::Stale => "stale",
            Self::Replayed => "replayed",
        }
    }
}

/// What stands before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// The number of the secret.
    pub(super) secret: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Milliseconds of the store's clock.
    pub(super) made_at: u64,
    /// Rises with each datagram of the sender.
    pub(super) number: u64,
}

/// Anybody could have made it.
#[derive(Debug)]
pub(super) struct Unproven<'a> {
    pub(super) header: Header,
    signed: &'a [u8],
    tag: &'a [u8],
}

fn hmac(key: &[u8; 32]) -> Hmac<Sha256> {
    // As a block: HMAC itself fills a shorter key up with zeros.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    Hmac::new(&block.into())
}

/// Makes a datagram.
pub(super) fn seal(header: Header, body: &[u8], key: &[u8; 32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len() + TAG);
    bytes.extend([FORM, header.kind as u8]);
    for number in [
        header.secret,
        header.from,
        header.to,
        header.made_at,
        header.number,
    ] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(body);
    let tag = hmac(key).chain_update(&bytes).finalize().into_bytes();
    bytes.extend(tag);
    bytes
}

/// Takes a datagram apart. Total: any bytes are of this form or refused.
pub(super) fn take_apart(bytes: &[u8]) -> Result<Unproven<'_>, Drop> {
    if bytes.len() > LARGEST {
        return Err(Drop::Oversized);
    }
    let (signed, tag) = bytes.split_last_chunk::<TAG>().ok_or(Drop::Malformed)?;
    let (header, _) = signed.split_first_chunk::<HEADER>().ok_or(Drop::Malformed)?;
    let ([form, kind], numbers) = header.split_first_chunk::<2>().ok_or(Drop::Malformed)?;
    let kind = match (*form, *kind) {
        (FORM, 1) => Kind::Pokes,
        (FORM, 2) => Kind::Hello,
        _ => return Err(Drop::Malformed),
    };
    let mut numbers = numbers
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_be_bytes(*bytes));
    let mut number = || numbers.next().ok_or(Drop::Malformed);
    let header = Header {
        kind,
        secret: number()?,
        from: number()?,
        to: number()?,
        made_at: number()?,
        number: number()?,
    };
    Ok(Unproven { header, signed, tag })
}

impl<'a> Unproven<'a> {
    /// The body, if whoever made it had the secret.
    pub(super) fn prove(&self, key: &[u8; 32]) -> Result<&'a [u8], Drop> {
        hmac(key)
            .chain_update(self.signed)
            .verify_slice(self.tag)
            .map_err(|_| Drop::Forged)?;
        Ok(self.signed.get(HEADER..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn header() -> Header {
        Header {
            kind: Kind::Pokes,
            secret: 1,
            from: u64::MAX,
            to: 3,
            made_at: 4,
            number: 5,
        }
    }

    fn open(bytes: &[u8]) -> Result<(Header, Vec<u8>), Drop> {
        let unproven = take_apart(bytes)?;
        Ok((unproven.header, unproven.prove(&KEY)?.to_vec()))
    }

    #[test]
    fn what_is_sealed_is_opened_by_who_has_the_secret() {
        // contract: POKE-6
        for body in [b"".as_slice(), b"body"] {
            let sealed = seal(header(), body, &KEY);
            assert_eq!(open(&sealed), Ok((header(), body.to_vec())));
            let other = take_apart(&sealed).expect("of this form");
            assert_eq!(other.prove(&[8; 32]), Err(Drop::Forged));
        }
    }

    #[test]
    fn every_bit_counts() {
        // contract: POKE-6
        let sealed = seal(header(), b"body", &KEY);
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&bytes).is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(open(&sealed[..length]).is_err());
        }
    }

    #[test]
    fn nothing_that_comes_from_outside_does_harm_or_is_accepted() {
        // contract: POKE-6
        let sealed = seal(header(), &[9; 300], &KEY);
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..20_000 {
            let mut bytes = if random.random() {
                sealed.clone()
            } else {
                let mut bytes = vec![0; random.random_range(0..2_000)];
                random.fill(&mut bytes[..]);
                bytes
            };
            for _ in 0..random.random_range(1..6) {
                if bytes.is_empty() {
                    break;
                }
                let at = random.random_range(0..bytes.len());
                match random.random_range(0..3) {
                    0 => bytes[at] = random.random(),
                    1 => bytes.truncate(at),
                    _ => bytes.insert(at, random.random()),
                }
            }
            assert!(bytes == sealed || open(&bytes).is_err());
        }
        assert_eq!(open(&vec![1; LARGEST + 1]), Err(Drop::Oversized));
        assert_eq!(open(&vec![0; LARGEST]), Err(Drop::Malformed));
    }
}
