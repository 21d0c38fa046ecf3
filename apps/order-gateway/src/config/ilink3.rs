//! The section of a venue that speaks CME's iLink 3: who logs in, and what the venue calls the
//! instruments.

use std::collections::BTreeMap;

use market::Symbol;
use order_entry::Text;
use order_entry::ilink3::{ClientConfig, Identity, Ilink3Client, IlinkFirm, Key};
use serde::Deserialize;
use toml::Spanned;

use super::Problem;

/// The longest keep-alive interval. CME's own limit.
const KEEP_ALIVE_MS_MAX: u16 = 60_000;

/// Keys that iLink 3 has besides those of each venue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ilink3Section {
    session: Spanned<String>,
    firm: Spanned<String>,
    access_key: Spanned<String>,
    /// The secret, in base64 with `-` and `_`.
    key: Spanned<String>,
    operator: Spanned<String>,
    location: Spanned<String>,
    party_details: u64,
    #[serde(default)]
    keep_alive_ms: Option<Spanned<u16>>,
    /// The venue's number of each instrument of the limits (SecurityID).
    securities: Spanned<BTreeMap<String, i32>>,
}

impl Ilink3Section {
    pub(super) fn check(&self) -> Result<(), Problem> {
        check::<3>(&self.session, "a session of iLink 3 has 3 bytes at most")?;
        check::<5>(&self.firm, "a firm of iLink 3 has 5 bytes at most")?;
        check::<20>(&self.access_key, "an access key of iLink 3 has 20 bytes at most")?;
        check::<20>(&self.operator, "an operator of iLink 3 has 20 bytes at most")?;
        check::<5>(&self.location, "a location of iLink 3 has 5 bytes at most")?;
        if Key::from_base64url(self.key.get_ref()).is_none() {
            return Err(Problem::new(self.key.span(), "a key of iLink 3 is base64, with `-` and `_`"));
        }
        match self.keep_alive_ms.as_ref().filter(|ms| !(100..=KEEP_ALIVE_MS_MAX).contains(ms.get_ref())) {
            Some(ms) => Err(Problem::new(ms.span(), "a keep-alive interval has 100 to 60000 ms")),
            None => Ok(()),
        }
    }

    /// Each instrument has its number.
    pub(super) fn check_names(&self, instruments: &[Symbol]) -> Result<(), Problem> {
        let has_number = |symbol: &&Symbol| self.securities.get_ref().contains_key(symbol.as_str());
        match instruments.iter().find(|symbol| !has_number(symbol)) {
            Some(symbol) => {
                Err(Problem::new(self.securities.span(), format!("securities lacks {symbol} of the limits")))
            }
            None => Ok(()),
        }
    }

    /// The session; `None` where the section was not checked, or lacks an instrument.
    pub(super) fn client(&self, instruments: &[Symbol], epoch_offset_ns: u64) -> Option<Ilink3Client> {
        let identity = Identity {
            session: text(&self.session)?,
            firm: text(&self.firm)?,
            access_key: text(&self.access_key)?,
            key: Key::from_base64url(self.key.get_ref())?,
            system: Text::zero_padded("wirepath")?,
            system_version: Text::zero_padded(env!("CARGO_PKG_VERSION"))?,
            system_vendor: Text::zero_padded("wirepath")?,
        };
        let securities = instruments.iter().map(|symbol| self.securities.get_ref().get(symbol.as_str()).copied());
        let firm = IlinkFirm {
            operator: text(&self.operator)?,
            location: text(&self.location)?,
            party_details: self.party_details,
            securities: securities.collect::<Option<_>>()?,
        };
        let config = ClientConfig::new(identity);
        let keep_alive_ms = self.keep_alive_ms.as_ref().map_or(config.keep_alive_ms, |ms| *ms.get_ref());
        Some(Ilink3Client::new(ClientConfig { keep_alive_ms, ..config }, firm, epoch_offset_ns))
    }
}

fn check<const LEN: usize>(value: &Spanned<String>, rule: &str) -> Result<(), Problem> {
    if text::<LEN>(value).is_some() { Ok(()) } else { Err(Problem::new(value.span(), rule)) }
}

fn text<const LEN: usize>(value: &Spanned<String>) -> Option<Text<LEN>> {
    Text::zero_padded(value.get_ref())
}
