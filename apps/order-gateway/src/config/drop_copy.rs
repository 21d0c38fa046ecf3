//! The drop copy's section: OUCH 5.0's own, or a session of FIX.

use std::net::SocketAddrV4;
use std::ops::Range;
use std::time::Duration;

use order_entry::fix::session::{Schedule, SessionConfig, Version};
use serde::Deserialize;
use toml::Spanned;

use super::venue::{CopiesBy, VenueConfig, check_hours, is_fix_text, second_of_day, text};
use super::{Problem, endpoint};
use crate::drop_copy::{DropCopyConfig, DropCopyProtocol};

const LAG_MS: u32 = 5_000;

/// The drop copy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DropCopySection {
    #[serde(deserialize_with = "endpoint")]
    address: SocketAddrV4,
    #[serde(default)]
    lag_ms: Option<u32>,
    version: Option<Spanned<VersionWord>>,
    sender: Option<Spanned<String>>,
    target: Option<Spanned<String>>,
    username: Option<Spanned<String>>,
    password: Option<Spanned<String>>,
    opens: Option<Spanned<String>>,
    closes: Option<Spanned<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VersionWord {
    Fix42,
    Fix44,
    Fix50,
}

impl VersionWord {
    const fn version(self) -> Version {
        match self {
            Self::Fix42 => Version::Fix42,
            Self::Fix44 => Version::Fix44,
            Self::Fix50 => Version::Fix50Sp2,
        }
    }
}

impl DropCopySection {
    fn texts(&self) -> [(&'static str, Option<&Spanned<String>>); 6] {
        let Self { sender, target, username, password, opens, closes, .. } = self;
        [
            ("sender", sender.as_ref()),
            ("target", target.as_ref()),
            ("username", username.as_ref()),
            ("password", password.as_ref()),
            ("opens", opens.as_ref()),
            ("closes", closes.as_ref()),
        ]
    }

    pub(super) fn check(&self, at: Range<usize>, venue: &VenueConfig) -> Result<(), Problem> {
        let session = match venue.copies() {
            CopiesBy::Ouch => return self.refuses_fix(),
            CopiesBy::Fix(_, session) => session,
        };
        for (key, value) in self.texts() {
            if let Some(value) = value.filter(|value| !is_fix_text(value.get_ref())) {
                return Err(Problem::new(value.span(), format!("`{key}` must be printable ASCII, and not empty")));
            }
        }
        for (key, value) in self.texts().into_iter().take(2) {
            if value.is_none() && session.is_none() {
                let what = format!("copies of {} are by FIX: [drop_copy] needs the key `{key}`", venue.protocol_name());
                return Err(Problem::new(at, what));
            }
        }
        check_hours(self.opens.as_ref(), self.closes.as_ref())
    }

    fn refuses_fix(&self) -> Result<(), Problem> {
        let version = self.version.as_ref().map(|version| ("version", version.span()));
        let texts = self.texts().into_iter().find_map(|(key, value)| Some((key, value?.span())));
        match version.or(texts) {
            Some((key, at)) => Err(Problem::new(at, format!("the drop copy of ouch50 has no key `{key}`"))),
            None => Ok(()),
        }
    }

    /// The drop copy; `None` where the section was not checked.
    pub(super) fn config(&self, venue: &VenueConfig) -> Option<DropCopyConfig> {
        let protocol = match venue.copies() {
            CopiesBy::Ouch => DropCopyProtocol::Ouch(venue.credentials()?),
            CopiesBy::Fix(of, session) => DropCopyProtocol::Fix { session: self.session(session)?, of },
        };
        let lag = Duration::from_millis(self.lag_ms.unwrap_or(LAG_MS).into());
        Some(DropCopyConfig { address: self.address, protocol, lag })
    }

    /// The session, with what `venue`, that of orders by FIX, has where a key is not there. Cboe's
    /// and CME's drop copies are FIX 4.2.
    fn session(&self, venue: Option<SessionConfig>) -> Option<SessionConfig> {
        let owned = |value: &Option<Spanned<String>>| text(value).map(str::to_owned);
        let base = venue.unwrap_or_else(|| SessionConfig { version: Version::Fix42, ..SessionConfig::default() });
        let hours = text(&self.opens).and_then(second_of_day).zip(text(&self.closes).and_then(second_of_day));
        let session = SessionConfig {
            version: self.version.as_ref().map_or(base.version, |word| word.get_ref().version()),
            sender: owned(&self.sender).unwrap_or(base.sender),
            target: owned(&self.target).unwrap_or(base.target),
            username: owned(&self.username).or(base.username),
            password: owned(&self.password).or(base.password),
            schedule: hours.map(|(opens, closes)| Schedule::daily(opens, closes)).or(base.schedule),
            ..base
        };
        Some(session).filter(|session| !session.sender.is_empty() && !session.target.is_empty())
    }
}
