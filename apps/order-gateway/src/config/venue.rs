//! The venue's section: where it is, which protocol it speaks, and that protocol's keys.

use std::fmt::Display;
use std::net::SocketAddrV4;
use std::num::NonZeroU32;

use market::Symbol;
use order_entry::Text;
use order_entry::boe::{self, Boe2Client, Boe3Client, BoeFirm};
use order_entry::fix::orders::OrderCapacity;
use order_entry::fix::session::{Schedule, SessionConfig, Version};
use order_entry::fix::{CopiedSession, FixClient, FixClientConfig};
use order_entry::ilink3::Ilink3Client;
use order_entry::ouch::{Capacity, Ouch42Client, OuchClient};
use order_entry::soupbin::{ClientConfig, Credentials};
use serde::Deserialize;
use toml::Spanned;

use super::ilink3::Ilink3Section;
use super::ouch::OuchSection;
use super::{Problem, endpoint, optional_endpoint};

/// HeartBtInt (108) where none is given: a dead line is found after 2.4 of it.
const HEARTBEAT_S: u32 = 10;
/// At 1,024 unanswered messages a venue of BOE stops reading, and goes on at 960.
const BOE_IN_FLIGHT_MAX: usize = 960;

/// What a venue needs of the file of limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct VenueNeeds {
    /// The section says how the venue prevents trades with oneself: limits may leave them to it.
    pub(crate) has_self_match: bool,
    /// Each instrument needs its multiplier.
    pub(crate) is_of_futures: bool,
    /// Each instrument needs its tick.
    pub(crate) has_finer_prices: bool,
    /// The name of its protocol.
    pub(crate) protocol: &'static str,
}

/// The venue's session.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VenueConfig {
    protocol: Spanned<Protocol>,
    /// Where to connect first.
    #[serde(deserialize_with = "endpoint")]
    pub primary: SocketAddrV4,
    /// Where to connect when the primary does not answer. By default none.
    #[serde(default, deserialize_with = "optional_endpoint")]
    pub secondary: Option<SocketAddrV4>,
    /// Whose TCP the session goes by. By default the kernel's.
    #[serde(default)]
    transport: Transport,
    via: Option<Spanned<String>>,
    local_port: Option<Spanned<u16>>,
    /// The venue cancels all orders of the session where its connection breaks. By default false.
    #[serde(default)]
    pub cancel_on_disconnect: bool,
    in_flight_max: Option<NonZeroU32>,
    password: Option<Spanned<String>>,
    user: Option<Spanned<String>>,
    sub_id: Option<Spanned<String>>,
    firm: Option<Spanned<String>>,
    sender: Option<Spanned<String>>,
    target: Option<Spanned<String>>,
    username: Option<Spanned<String>>,
    account: Option<Spanned<String>>,
    operator: Option<Spanned<String>>,
    heartbeat_s: Option<Spanned<u32>>,
    opens: Option<Spanned<String>>,
    closes: Option<Spanned<String>>,
    capacity: Option<Spanned<CapacityWord>>,
    self_match: Option<Spanned<SelfMatchWord>>,
    ilink3: Option<Spanned<Ilink3Section>>,
    ouch50: Option<Spanned<OuchSection>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    #[default]
    Kernel,
    /// On a port of ours, where the feed comes too.
    Wirepath,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    Ouch50,
    Ouch42,
    Fix42,
    Fix44,
    /// FIX 5.0 SP2 over FIXT 1.1.
    Fix50,
    Boe2,
    Boe3,
    Ilink3,
}

impl Protocol {
    const fn family(self) -> Family {
        match self {
            Self::Ouch50 | Self::Ouch42 => Family::Ouch,
            Self::Fix42 => Family::Fix(Version::Fix42),
            Self::Fix44 => Family::Fix(Version::Fix44),
            Self::Fix50 => Family::Fix(Version::Fix50Sp2),
            Self::Boe2 => Family::Boe { has_operator: false },
            Self::Boe3 => Family::Boe { has_operator: true },
            Self::Ilink3 => Family::Ilink3,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ouch50 => "ouch50",
            Self::Ouch42 => "ouch42",
            Self::Fix42 => "fix42",
            Self::Fix44 => "fix44",
            Self::Fix50 => "fix50",
            Self::Boe2 => "boe2",
            Self::Boe3 => "boe3",
            Self::Ilink3 => "ilink3",
        }
    }
}

/// Protocols whose sections have the same keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Ouch,
    Fix(Version),
    /// Version 3 names the operator of each order.
    Boe {
        has_operator: bool,
    },
    /// Its keys are in a section of their own.
    Ilink3,
}

/// For whom orders trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CapacityWord {
    Agency,
    Principal,
    RisklessPrincipal,
    Other,
    /// Of futures at Cboe.
    Customer,
    /// Of futures at Cboe.
    Firm,
}

impl CapacityWord {
    const fn ouch(self) -> Option<Capacity> {
        match self {
            Self::Agency => Some(Capacity::AGENCY),
            Self::Principal => Some(Capacity::PRINCIPAL),
            Self::RisklessPrincipal => Some(Capacity::RISKLESS_PRINCIPAL),
            Self::Other => Some(Capacity::OTHER),
            Self::Customer | Self::Firm => None,
        }
    }

    /// That of version 3 with `is_futures`.
    const fn boe(self, is_futures: bool) -> Option<boe::Capacity> {
        match (self, is_futures) {
            (Self::Agency, false) => Some(boe::Capacity::AGENCY),
            (Self::Principal, false) => Some(boe::Capacity::PRINCIPAL),
            (Self::RisklessPrincipal, false) => Some(boe::Capacity::RISKLESS_PRINCIPAL),
            (Self::Customer, true) => Some(boe::Capacity::CUSTOMER),
            (Self::Firm, true) => Some(boe::Capacity::FIRM),
            _ => None,
        }
    }

    /// That of OrderCapacity (528), in FIX 4.2 of Rule80A (47), where a version has it.
    const fn fix(self, version: Version) -> Option<OrderCapacity> {
        match (self, version) {
            (Self::Agency, _) => Some(OrderCapacity::Agency),
            (Self::Principal, _) => Some(OrderCapacity::Principal),
            (Self::RisklessPrincipal, Version::Fix42) | (Self::Other | Self::Customer | Self::Firm, _) => None,
            (Self::RisklessPrincipal, _) => Some(OrderCapacity::RisklessPrincipal),
        }
    }
}

/// How the venue prevents trades with oneself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SelfMatchWord {
    /// By a setting there, of the port or of the party details: orders say nothing.
    Port,
    CancelNewest,
    CancelOldest,
    CancelBoth,
}

impl SelfMatchWord {
    const fn boe(self) -> Option<boe::SelfMatchRule> {
        match self {
            Self::Port => None,
            Self::CancelNewest => Some(boe::SelfMatchRule::CancelNewest),
            Self::CancelOldest => Some(boe::SelfMatchRule::CancelOldest),
            Self::CancelBoth => Some(boe::SelfMatchRule::CancelBoth),
        }
    }
}

/// The session that a configuration describes.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
pub enum VenueClient {
    /// OUCH 5.0 over SoupBinTCP.
    Ouch(OuchClient),
    /// OUCH 4.2 over SoupBinTCP.
    Ouch42(Ouch42Client),
    /// FIX.
    Fix(FixClient),
    /// Cboe BOE, version 2.
    Boe2(Boe2Client),
    /// Cboe BOE, version 3.
    Boe3(Boe3Client),
    /// CME iLink 3.
    Ilink3(Ilink3Client),
}

/// How copies of trades come.
#[expect(clippy::large_enum_variant, reason = "there is one")]
pub(super) enum CopiesBy {
    /// As messages of OUCH 5.0, with the venue's user.
    Ouch,
    /// By FIX, of a session by this protocol; with that session, where it is FIX too.
    Fix(CopiedSession, Option<SessionConfig>),
}

/// A key of the section, if it is there: its name, and where its value is.
type Key<'a> = (&'static str, Option<&'a Spanned<String>>);

impl VenueConfig {
    pub(super) fn check(&self) -> Result<(), Problem> {
        self.check_transport()?;
        let Self { password, user, sub_id, firm, sender, target, username, account, opens, closes, .. } = self;
        let ouch = [("user", user.as_ref()), ("firm", firm.as_ref())];
        let boe = [("sub_id", sub_id.as_ref()), ("operator", self.operator.as_ref())];
        let fix = [("sender", sender.as_ref()), ("target", target.as_ref())];
        let account = [("account", account.as_ref())];
        let more = [("username", username.as_ref()), ("opens", opens.as_ref()), ("closes", closes.as_ref())];
        let password = [("password", password.as_ref())];
        let family = self.protocol.get_ref().family();
        if let Some(section) = self.ilink3.as_ref().filter(|_| family != Family::Ilink3) {
            return Err(self.stranger("ilink3", section));
        }
        if let Some(section) = &self.ouch50 {
            match self.protocol.get_ref() {
                Protocol::Ouch50 => section.get_ref().check()?,
                _ => return Err(self.stranger("ouch50", section)),
            }
        }
        if let Some(word) = self.self_match.as_ref().filter(|word| word.get_ref().boe().is_some())
            && !matches!(family, Family::Boe { .. })
        {
            let name = self.protocol.get_ref().name();
            let what =
                format!("orders of {name} say no such thing here: \"port\", where the venue is set to prevent it");
            return Err(Problem::new(word.span(), what));
        }
        match family {
            Family::Ouch => {
                self.needs(&ouch)?;
                self.needs(&password)?;
                self.needs_capacity()?;
                [&fix[..], &more, &account, &boe].into_iter().try_for_each(|keys| self.refuses(keys))?;
                self.refuses_heartbeat()?;
                self.check_capacity(|word| word.ouch().is_some())?;
                self.check_ouch()
            }
            Family::Fix(version) => {
                self.needs(&fix)?;
                self.refuses(&ouch)?;
                self.refuses(&boe)?;
                self.check_capacity(|word| word.fix(version).is_some())?;
                self.check_fix(fix.into_iter().chain(more).chain(account).chain(password))
            }
            Family::Boe { has_operator } => {
                self.needs(&[ouch[0], boe[0]])?;
                self.needs(&password)?;
                self.needs_capacity()?;
                [&fix[..], &more].into_iter().try_for_each(|keys| self.refuses(keys))?;
                if has_operator { self.needs(&boe[1..]) } else { self.refuses(&boe[1..]) }?;
                self.refuses_heartbeat()?;
                self.check_capacity(|word| word.boe(has_operator).is_some())?;
                self.check_boe()
            }
            Family::Ilink3 => {
                [&ouch[..], &boe, &fix, &more, &account, &password]
                    .into_iter()
                    .try_for_each(|keys| self.refuses(keys))?;
                self.refuses_heartbeat()?;
                self.check_capacity(|_| false)?;
                self.ilink3.as_ref().ok_or_else(|| self.missing("ilink3"))?.get_ref().check()
            }
        }
    }

    /// A port of ours has a name, and a local port that no connection of the kernel takes.
    fn check_transport(&self) -> Result<(), Problem> {
        let is_wirepath = self.transport == Transport::Wirepath;
        let (via, port) = (self.via.as_ref(), self.local_port.as_ref());
        let missing = |key: &str| {
            let what = format!("transport = \"wirepath\" needs the key `{key}` in [venue]");
            Err(Problem::new(self.protocol.span(), what))
        };
        let strange =
            |key: &str, at| Err(Problem::new(at, format!("`{key}` of [venue] is for transport = \"wirepath\"")));
        match (is_wirepath, via, port) {
            (true, None, _) => missing("via"),
            (true, _, None) => missing("local_port"),
            (true, _, Some(port)) if matches!(*port.get_ref(), 0 | u16::MAX) => {
                Err(Problem::new(port.span(), "the port is 1 to 65534, because the one above it is ours too"))
            }
            (false, Some(via), _) => strange("via", via.span()),
            (false, _, Some(port)) => strange("local_port", port.span()),
            _ => Ok(()),
        }
    }

    /// The port by which the venue is called, where it is ours, and from where: there, and from the
    /// number above.
    pub(super) fn port(&self) -> Option<(&str, [u16; 2])> {
        let is_wirepath = self.transport == Transport::Wirepath;
        let (via, port) = self.via.as_ref().zip(self.local_port.as_ref()).filter(|_| is_wirepath)?;
        Some((via.get_ref(), [*port.get_ref(), port.get_ref().saturating_add(1)]))
    }

    /// The section names each instrument, where it must.
    pub(super) fn check_names(&self, instruments: &[Symbol]) -> Result<(), Problem> {
        self.ilink3.as_ref().map_or(Ok(()), |section| section.get_ref().check_names(instruments))
    }

    fn needs_capacity(&self) -> Result<(), Problem> {
        if self.capacity.is_none() { Err(self.missing("capacity")) } else { Ok(()) }
    }

    fn refuses_heartbeat(&self) -> Result<(), Problem> {
        self.heartbeat_s.as_ref().map_or(Ok(()), |heartbeat| Err(self.stranger("heartbeat_s", heartbeat)))
    }

    fn check_capacity(&self, has: impl Fn(CapacityWord) -> bool) -> Result<(), Problem> {
        let Some(capacity) = self.capacity.as_ref().filter(|word| !has(*word.get_ref())) else { return Ok(()) };
        Err(Problem::new(capacity.span(), format!("{} has no such capacity", self.protocol.get_ref().name())))
    }

    /// How copies of this protocol's trades come.
    pub(super) fn copies(&self) -> CopiesBy {
        let of = match self.protocol.get_ref() {
            Protocol::Ouch50 => return CopiesBy::Ouch,
            Protocol::Ouch42 => CopiedSession::Ouch42,
            Protocol::Fix42 | Protocol::Fix44 | Protocol::Fix50 => CopiedSession::Fix,
            Protocol::Boe2 | Protocol::Boe3 => CopiedSession::Boe,
            Protocol::Ilink3 => CopiedSession::Ilink3,
        };
        let session = match self.protocol.get_ref().family() {
            Family::Fix(version) => self.fix_session(version),
            _ => None,
        };
        CopiesBy::Fix(of, session)
    }

    /// Orders and replaces that the venue has not answered, at most. By default 960 with BOE, whose
    /// venue reads no more behind 1,024, also no cancels, before they are so few; else no limit.
    pub fn in_flight_max(&self) -> usize {
        let usual = match self.protocol.get_ref() {
            Protocol::Boe2 | Protocol::Boe3 => BOE_IN_FLIGHT_MAX,
            _ => usize::MAX,
        };
        self.in_flight_max.map_or(usual, |most| most.get() as usize)
    }

    pub(super) fn protocol_name(&self) -> &'static str {
        self.protocol.get_ref().name()
    }

    pub(super) fn needs_of_limits(&self) -> VenueNeeds {
        let protocol = self.protocol.get_ref();
        VenueNeeds {
            has_self_match: self.self_match.is_some(),
            // A price is no money there.
            is_of_futures: matches!(protocol, Protocol::Boe3 | Protocol::Ilink3),
            // A price on the wire of FIX may have more decimals too: there a fill that is rounded
            // is an alarm.
            has_finer_prices: matches!(protocol, Protocol::Ilink3),
            protocol: self.protocol_name(),
        }
    }

    fn needs(&self, keys: &[Key<'_>]) -> Result<(), Problem> {
        let missing = keys.iter().find(|(_, value)| value.is_none());
        missing.map_or(Ok(()), |(key, _)| Err(self.missing(key)))
    }

    fn missing(&self, key: &str) -> Problem {
        let what = format!("{} needs the key `{key}` in [venue]", self.protocol.get_ref().name());
        Problem::new(self.protocol.span(), what)
    }

    fn refuses(&self, keys: &[Key<'_>]) -> Result<(), Problem> {
        let found = keys.iter().find_map(|(key, value)| value.map(|value| (key, value)));
        found.map_or(Ok(()), |(key, value)| Err(self.stranger(key, value)))
    }

    fn stranger<T>(&self, key: impl Display, value: &Spanned<T>) -> Problem {
        Problem::new(value.span(), format!("{} has no key `{key}`", self.protocol.get_ref().name()))
    }

    fn check_ouch(&self) -> Result<(), Problem> {
        let user = (&self.user, "a user of SoupBinTCP has 6 bytes at most");
        let password = (&self.password, "a password of SoupBinTCP has 10 bytes at most");
        let firm = (&self.firm, "a firm of OUCH has 4 bytes at most");
        check_text(user, |text| Credentials::new(text, "").is_some())?;
        check_text(password, |text| Credentials::new("", text).is_some())?;
        check_text(firm, |text| Text::<4>::new(text).is_some())
    }

    fn check_boe(&self) -> Result<(), Problem> {
        check_text((&self.user, "a user of BOE has 4 bytes at most"), |text| text.len() <= 4)?;
        check_text((&self.sub_id, "a sub-identifier of BOE has 4 bytes at most"), |text| text.len() <= 4)?;
        check_text((&self.password, "a password of BOE has 10 bytes at most"), |text| text.len() <= 10)?;
        check_text((&self.firm, "a clearing firm of BOE has 4 bytes at most"), |text| text.len() <= 4)?;
        check_text((&self.account, "an account of BOE has 16 bytes at most"), |text| text.len() <= 16)?;
        check_text((&self.operator, "an operator of BOE has 18 bytes at most"), |text| text.len() <= 18)
    }

    fn check_fix<'a>(&self, texts: impl Iterator<Item = Key<'a>>) -> Result<(), Problem> {
        for (key, value) in texts {
            let Some(value) = value else { continue };
            if !is_fix_text(value.get_ref()) {
                return Err(Problem::new(value.span(), format!("`{key}` must be printable ASCII, and not empty")));
            }
        }
        if let Some(heartbeat) = self.heartbeat_s.as_ref().filter(|seconds| *seconds.get_ref() == 0) {
            return Err(Problem::new(heartbeat.span(), "without heartbeats a dead line is never found"));
        }
        check_hours(self.opens.as_ref(), self.closes.as_ref())
    }

    /// User and password of SoupBinTCP.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        Credentials::new(text(&self.user)?, text(&self.password)?)
    }

    /// The session; `None` where the section was not checked. `instruments` are those of the limits
    /// by position, `epoch_offset_ns` is added to a run's clock for UTC.
    pub(super) fn client(&self, instruments: Vec<Symbol>, epoch_offset_ns: u64) -> Option<VenueClient> {
        let capacity = self.capacity.as_ref().map(|word| *word.get_ref());
        match self.protocol.get_ref().family() {
            Family::Ouch => {
                let firm = Text::new(text(&self.firm)?)?;
                let (config, capacity) = (ClientConfig::new(self.credentials()?), capacity?.ouch()?);
                Some(match self.protocol.get_ref() {
                    Protocol::Ouch42 => VenueClient::Ouch42(Ouch42Client::new(config, firm, capacity, epoch_offset_ns)),
                    _ => {
                        let client = OuchClient::new(config).of_firm(firm, capacity);
                        let options = self.ouch50.as_ref().map(|section| section.get_ref().options());
                        VenueClient::Ouch(client.with_options(&options.unwrap_or_default()))
                    }
                })
            }
            Family::Boe { has_operator } => self.boe_client(has_operator, capacity?.boe(has_operator)?),
            Family::Fix(version) => self.fix_client(version, capacity, instruments, epoch_offset_ns),
            Family::Ilink3 => {
                self.ilink3.as_ref()?.get_ref().client(&instruments, epoch_offset_ns).map(VenueClient::Ilink3)
            }
        }
    }

    fn boe_client(&self, is_futures: bool, capacity: boe::Capacity) -> Option<VenueClient> {
        let credentials = boe::Credentials::new(text(&self.user)?, text(&self.sub_id)?, text(&self.password)?)?;
        let firm = BoeFirm {
            capacity,
            clearing_firm: Text::zero_padded(text(&self.firm).unwrap_or_default())?,
            account: Text::zero_padded(text(&self.account).unwrap_or_default())?,
            operator: Text::zero_padded(text(&self.operator).unwrap_or_default())?,
            self_match: self.self_match.as_ref().and_then(|word| word.get_ref().boe()),
        };
        let config = boe::ClientConfig::new(credentials);
        Some(match is_futures {
            true => VenueClient::Boe3(Boe3Client::new(config, firm)),
            false => VenueClient::Boe2(Boe2Client::new(config, firm)),
        })
    }

    fn fix_session(&self, version: Version) -> Option<SessionConfig> {
        let owned = |value: &Option<Spanned<String>>| text(value).map(str::to_owned);
        let hours = text(&self.opens).and_then(second_of_day).zip(text(&self.closes).and_then(second_of_day));
        Some(SessionConfig {
            version,
            sender: owned(&self.sender)?,
            target: owned(&self.target)?,
            username: owned(&self.username),
            password: owned(&self.password),
            heartbeat_s: self.heartbeat_s.as_ref().map_or(HEARTBEAT_S, |seconds| *seconds.get_ref()),
            schedule: hours.map(|(opens, closes)| Schedule::daily(opens, closes)),
            ..SessionConfig::default()
        })
    }

    fn fix_client(
        &self,
        version: Version,
        capacity: Option<CapacityWord>,
        instruments: Vec<Symbol>,
        epoch_offset_ns: u64,
    ) -> Option<VenueClient> {
        let session = self.fix_session(version)?;
        let (account, capacity) = (text(&self.account).map(str::to_owned), capacity.and_then(|word| word.fix(version)));
        let config = FixClientConfig { session, account, capacity, instruments, epoch_offset_ns };
        Some(VenueClient::Fix(FixClient::new(config)))
    }
}

/// A value by its rule, where it is there.
fn check_text((value, rule): (&Option<Spanned<String>>, &str), is_right: impl Fn(&str) -> bool) -> Result<(), Problem> {
    match value.as_ref().filter(|value| !is_right(value.get_ref())) {
        Some(value) => Err(Problem::new(value.span(), rule)),
        None => Ok(()),
    }
}

/// Whether FIX takes a text as the value of a field.
pub(super) fn is_fix_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

/// Both hours between which a session goes on, or none.
pub(super) fn check_hours(opens: Option<&Spanned<String>>, closes: Option<&Spanned<String>>) -> Result<(), Problem> {
    for hour in [opens, closes].into_iter().flatten() {
        if second_of_day(hour.get_ref()).is_none() {
            return Err(Problem::new(hour.span(), "an hour and a minute of UTC, such as \"22:00\""));
        }
    }
    match (opens, closes) {
        (Some(hour), None) | (None, Some(hour)) => Err(Problem::new(hour.span(), "`opens` and `closes` go together")),
        _ => Ok(()),
    }
}

pub(super) fn text(value: &Option<Spanned<String>>) -> Option<&str> {
    value.as_ref().map(|value| value.get_ref().as_str())
}

/// The second of a day of `22:00`.
pub(super) fn second_of_day(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str, below: u32| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|number| is_number && *number < below)
    };
    Some(3_600 * number(hours, 24)? + 60 * number(minutes, 60)?)
}
