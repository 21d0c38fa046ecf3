//! `[channels.rerequest]` and `[channels.image]`: the servers of a channel.

use std::net::{Ipv4Addr, SocketAddrV4};

use market::RetryPolicy;
use market::framing::iex_tp::GapRequest;
use market::image::ImagePolicy;
use market::memx::replay::LoginToken;
use market::pitch::servers::Login;
use market::truth::Group;
use order_entry::soupbin::Credentials;
use serde::Deserialize;
use toml::Spanned;

use super::problem::ConfigProblem;
use super::words::{Port, Sender, within};
use crate::format::Format;
use crate::recovery::{ImagePlan, ImageSource, ProxyPlan, RecoveryGroup, RequestPlan};

/// The server that sends missing messages again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RerequestSection {
    server: Server,
    bind: Option<Spanned<Bind>>,
    delay_us: Option<Micros>,
    timeout_ms: Option<Millis>,
    attempts: Option<Attempts>,
    outstanding: Option<Outstanding>,
    messages: Option<Spanned<Messages>>,
    per_second: Option<PerSecond>,
    hole_max: Option<u64>,
    session: Option<Spanned<String>>,
    user: Option<Spanned<String>>,
    password: Option<Spanned<String>>,
    token_type: Option<Spanned<String>>,
    token: Option<Spanned<String>>,
    group: Option<Spanned<Group>>,
    port: Option<Spanned<Port>>,
    sources: Option<Spanned<Vec<Sender>>>,
    interface: Option<Spanned<Ipv4Addr>>,
}

/// The server that sends images of all books.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSection {
    server: Server,
    session: Option<Spanned<String>>,
    any_session: Option<Spanned<bool>>,
    user: Option<Spanned<String>>,
    password: Option<Spanned<String>>,
    interval_ms: Option<Millis>,
    timeout_s: Option<Seconds>,
    queue_mb: Option<Megabytes>,
}

/// Declares a number or word of this section, as `checked!` of the whole file does.
macro_rules! numbers {
    ($($name:ident($inner:ty): $least:literal to $most:literal, $what:literal;)*) => { $(
        #[derive(Clone, Copy, Debug, Deserialize)]
        #[serde(try_from = "i64")]
        pub(super) struct $name(pub(super) $inner);

        impl TryFrom<i64> for $name {
            type Error = String;

            fn try_from(value: i64) -> Result<Self, String> {
                within(value, $least, $most, $what).map(|value| Self(value as $inner))
            }
        }
    )* };
}

numbers! {
    Micros(u64): 0 to 10_000_000, "microseconds";
    Millis(u64): 1 to 600_000, "milliseconds";
    Seconds(u64): 1 to 86_400, "seconds";
    Attempts(u32): 1 to 1_000, "requests for the same messages";
    Outstanding(usize): 1 to 1_024, "requests at once";
    Messages(u16): 1 to 65_534, "messages of one request";
    PerSecond(u64): 1 to 1_000_000, "requests a second";
    Megabytes(usize): 1 to 65_536, "megabytes";
}

/// The address of a server.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Server(SocketAddrV4);

/// An address of this host; port 0 is any.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Bind(SocketAddrV4);

impl TryFrom<String> for Server {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const FORM: &str = "use the address and port of a server, such as \"198.51.100.9:26478\"";
        let address: SocketAddrV4 =
            text.parse().map_err(|_| format!("{text:?} is not an IPv4 address with a port; {FORM}"))?;
        if address.port() == 0 || address.ip().is_multicast() || address.ip().is_unspecified() {
            return Err(format!("{address} cannot be reached; {FORM}"));
        }
        Ok(Self(address))
    }
}

impl TryFrom<String> for Bind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const FORM: &str = "use an address of this host and a port or 0, such as \"10.0.0.2:0\"";
        text.parse().map(Self).map_err(|_| format!("{text:?} is not an IPv4 address with a port; {FORM}"))
    }
}

/// What is wrong with a key that a format does not have, or needs.
fn key<'a, T>(
    section: &Spanned<impl Sized>,
    name: &str,
    value: &'a Option<Spanned<T>>,
    format: Format,
    is_needed: bool,
) -> Result<Option<&'a T>, ConfigProblem> {
    match value {
        Some(value) if !is_needed => {
            Err(ConfigProblem::new(value.span(), format!("servers of {format} have no {name}: leave this out")))
        }
        None if is_needed => {
            Err(ConfigProblem::new(section.span(), format!("a server of {format} needs {name}: add it")))
        }
        value => Ok(value.as_ref().map(Spanned::get_ref)),
    }
}

/// A login of Cboe's servers; the texts have been checked to be there.
fn unit_login(
    section: &Spanned<impl Sized>,
    [session, user, password]: [&Option<Spanned<String>>; 3],
) -> Result<Login, ConfigProblem> {
    let format = Format::CboePitch;
    let session = key(section, "session", session, format, true)?.map_or("", String::as_str);
    let name = key(section, "user", user, format, true)?.map_or("", String::as_str);
    let password = key(section, "password", password, format, true)?.map_or("", String::as_str);
    let what = "session and user have 4 characters at most, a password 10";
    Login::new(session, name, password).ok_or_else(|| {
        let at = user.as_ref().map_or(section.span(), Spanned::span);
        ConfigProblem::new(at, what)
    })
}

/// The login of a server of replays, where the format has one.
fn login_token(
    section: &Spanned<RerequestSection>,
    format: Format,
    is_needed: bool,
) -> Result<Option<LoginToken>, ConfigProblem> {
    let own = section.get_ref();
    let kind = key(section, "token_type", &own.token_type, format, is_needed)?;
    let token = key(section, "token", &own.token, format, is_needed)?;
    let (Some(kind), Some(token)) = (kind, token) else { return Ok(None) };
    let login = match kind.as_bytes() {
        &[kind] => LoginToken::new(kind, token),
        _ => None,
    };
    let what = "token_type is one letter, and a token has 1 to 255 bytes";
    login.map(Some).ok_or_else(|| ConfigProblem::new(section.span(), what))
}

/// The servers of requests, checked against the format of their channel.
///
/// # Errors
///
/// A key that the format does not have, or needs.
pub fn requests(section: &Spanned<RerequestSection>, format: Format) -> Result<RequestPlan, ConfigProblem> {
    let own = section.get_ref();
    let is_proxy = format == Format::CboePitch;
    let is_replay = format == Format::MemxDepth;
    let has_servers = matches!(format, Format::MoldItch50 | Format::IexTops | Format::IexDeep | Format::CboePitch);
    if !has_servers && !is_replay {
        let what = format!("no server sends messages of {format} again: leave this out");
        return Err(ConfigProblem::new(section.span(), what));
    }
    key(section, "group", &own.group, format, is_proxy)?;
    let proxy = if is_proxy {
        let login = unit_login(section, [&own.session, &own.user, &own.password])?;
        let (Some(group), Some(port)) = (&own.group, &own.port) else {
            return Err(ConfigProblem::new(section.span(), "the group of the gap responses needs port: add it"));
        };
        Some(ProxyPlan {
            login,
            group: RecoveryGroup {
                address: SocketAddrV4::new(group.get_ref().address(), port.get_ref().0),
                senders: own.sources.iter().flat_map(Spanned::get_ref).map(|sender| sender.0).collect(),
            },
            interface: own.interface.as_ref().map_or(Ipv4Addr::UNSPECIFIED, |interface| *interface.get_ref()),
        })
    } else {
        for (name, value) in [("session", &own.session), ("user", &own.user), ("password", &own.password)] {
            key(section, name, value, format, false)?;
        }
        key(section, "port", &own.port, format, false)?;
        key(section, "sources", &own.sources, format, false)?;
        key(section, "interface", &own.interface, format, false)?;
        None
    };
    if is_proxy || is_replay {
        // Answers come by a connection, or by a group: the kernel chooses our end of it.
        key(section, "bind", &own.bind, format, false)?;
    }
    let replays = login_token(section, format, is_replay)?;
    let most = match format {
        Format::IexTops | Format::IexDeep => GapRequest::MESSAGES_MAX as u16,
        _ => u16::MAX,
    };
    if let Some(messages) = own.messages.as_ref().filter(|messages| messages.get_ref().0 > most) {
        let what = format!("servers of {format} send {most} messages for one request at most");
        return Err(ConfigProblem::new(messages.span(), what));
    }
    let usual = RetryPolicy::default();
    Ok(RequestPlan {
        server: own.server.0,
        bind: own.bind.as_ref().map_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), |bind| bind.get_ref().0),
        retry: RetryPolicy {
            delay_ns: own.delay_us.map_or(usual.delay_ns, |delay| delay.0 * 1_000),
            timeout_ns: own.timeout_ms.map_or(usual.timeout_ns, |timeout| timeout.0 * 1_000_000),
            attempts: own.attempts.map_or(usual.attempts, |attempts| attempts.0),
            outstanding: own.outstanding.map_or(usual.outstanding, |outstanding| outstanding.0),
            messages: own.messages.as_ref().map_or(usual.messages, |messages| messages.get_ref().0),
            interval_ns: own.per_second.map_or(usual.interval_ns, |rate| 1_000_000_000 / rate.0),
            burst: usual.burst,
        },
        hole_max: own.hole_max.unwrap_or(RequestPlan::HOLE_MAX),
        proxy,
        replays,
    })
}

/// The server of images, checked against the format of its channels, of which there are `count`.
///
/// # Errors
///
/// A key that the format does not have, or needs.
pub fn image(section: &Spanned<ImageSection>, format: Format, count: usize) -> Result<ImagePlan, ConfigProblem> {
    let own = section.get_ref();
    if count > 1 {
        let what = format!(
            "an image names no unit, so its server is that of one of the {count} numbers: give each number a \
             [[channels]] with an image of its own"
        );
        return Err(ConfigProblem::new(section.span(), what));
    }
    let source = match format {
        Format::MoldItch50 => {
            key(section, "session", &own.session, format, false)?;
            let user = key(section, "user", &own.user, format, true)?.map_or("", String::as_str);
            let password = key(section, "password", &own.password, format, true)?.map_or("", String::as_str);
            let what = "a user has 6 characters at most, a password 10";
            let at = own.user.as_ref().map_or(section.span(), Spanned::span);
            let credentials = Credentials::new(user, password).ok_or_else(|| ConfigProblem::new(at, what))?;
            ImageSource::Glimpse {
                credentials,
                any_session: own.any_session.as_ref().is_some_and(|any| *any.get_ref()),
            }
        }
        Format::CboePitch => {
            key(section, "any_session", &own.any_session, format, false)?;
            ImageSource::Spin(unit_login(section, [&own.session, &own.user, &own.password])?)
        }
        _ => {
            let what = format!("no server sends images of the books of {format}: leave this out");
            return Err(ConfigProblem::new(section.span(), what));
        }
    };
    let usual = ImagePolicy::default();
    Ok(ImagePlan {
        server: own.server.0,
        source,
        policy: ImagePolicy {
            queue_len_max: own.queue_mb.map_or(usual.queue_len_max, |queue| queue.0 << 20),
            interval_ns: own.interval_ms.map_or(usual.interval_ns, |interval| interval.0 * 1_000_000),
            timeout_ns: own.timeout_s.map_or(usual.timeout_ns, |timeout| timeout.0 * 1_000_000_000),
            // An ITCH message has 19 bytes at least, most have 36.
            messages_max: own.queue_mb.map_or(usual.messages_max, |queue| queue.0 << 15),
            ..usual
        },
    })
}
