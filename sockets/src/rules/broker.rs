//! The file of a broker: who may have what of which interface.
//!
//! ```toml
//! [[allow]]                              # the first that a program fits decides
//! user = ["trader", 1001]                # names or numbers; all where it is missing
//! group = "trading"                      # the program's own, or a supplementary one
//! program = ["/opt/engine", "/opt/bin/"] # files, or folders with what is below them
//! interface = "eth1"
//! ports = ["udp 5000-5010", "tcp 9000", "319"] # 1024-65535 where it is missing
//! addresses = "192.0.2.1"                # of the interface; all where it is missing
//! multicast = "239.1.0.0/16"
//! queues = 2                             # as many as there are where it is missing
//! ```

use core::ops::Range;
use std::path::Path;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};
use wirepath::proto::Ipv4Prefix;
use wirepath::wire::Protocol;
use wirepath::worker::broker::{BrokerPorts, BrokerProgram, BrokerRule};

use super::error::RulesError;
use super::set;
use super::toml::{self, Reader};

const WHO: &str = "a name or a number, or a list of them";
const PATHS: &str = "a path from the root on, such as \"/opt/engine\", or \"/opt/bin/\" for all in a folder";
const PORTS: &str = "a port or a range, for one protocol or both, such as \"udp 5000-5010\" or \"319\"";
const PREFIXES: &str = "an address or a prefix, such as \"192.0.2.1\" or \"239.1.0.0/16\"";
const QUEUES: &str = "a number of queues, from 1 to 128";
/// Clients of a broker.
const QUEUES_MAX: usize = 128;
/// What every user may bind.
const COMMON_PORTS: core::ops::RangeInclusive<u16> = 1_024..=u16::MAX;

/// The numbers of users and groups, by name: as `/etc/passwd` and `/etc/group` have them.
pub trait Names {
    /// The number of a user.
    fn user(&self, name: &str) -> Option<u32>;
    /// The number of a group.
    fn group(&self, name: &str) -> Option<u32>;
}

/// Reads the file of a broker: what it gives of `interface`.
///
/// # Errors
/// The file cannot be read, or is no such file; the sentence says where, and what was expected.
pub fn load_broker(path: &Path, interface: &str, names: &dyn Names) -> Result<Vec<BrokerRule>, RulesError> {
    let (name, text) = set::read(path)?;
    parse_broker(&name, &text, interface, names)
}

/// The rules of a broker in `text`; `name` is the name of the text's file.
///
/// # Errors
/// As of [`load_broker`].
pub fn parse_broker(name: &str, text: &str, interface: &str, names: &dyn Names) -> Result<Vec<BrokerRule>, RulesError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document = toml::document(name, text)?;
    let file = BrokerFile { reader: Reader { file: name, text }, names };
    file.reader.keys(document.get_ref(), &["allow"])?;
    let mut rules = Vec::new();
    let all = document.get_ref().get("allow").map(|all| file.reader.tables(all, "allow")).transpose()?;
    for (idx, rule) in all.into_iter().flatten().enumerate() {
        let (rule, is_here) = file.rule(rule, format!("rule {} of {name}", idx + 1), interface)?;
        if is_here {
            rules.push(rule);
        }
    }
    Ok(rules)
}

struct BrokerFile<'a> {
    reader: Reader<'a>,
    names: &'a dyn Names,
}

type Value<'v, 't> = &'v Spanned<DeValue<'t>>;

impl BrokerFile<'_> {
    /// A rule, and whether it is for this interface.
    fn rule(&self, rule: Value<'_, '_>, name: String, interface: &str) -> Result<(BrokerRule, bool), RulesError> {
        let table = self.reader.table(rule)?;
        let known = ["user", "group", "program", "interface", "ports", "addresses", "multicast", "queues"];
        self.reader.keys(table, &known)?;
        if !["user", "group", "program"].iter().any(|key| table.contains_key(*key)) {
            let what = "expected user, group or program: a rule says for whom it is";
            return Err(self.reader.at(rule.span(), what));
        }
        let interfaces = self.list(table, "interface", |value| {
            let what = "the name of an interface, or a list of them";
            self.reader.string(value, what).map(|name| name == interface)
        })?;
        let everywhere = || vec![Ipv4Prefix::new(core::net::Ipv4Addr::UNSPECIFIED, 0).expect("0 is a length")];
        let common = || vec![BrokerPorts { protocol: None, ports: COMMON_PORTS }];
        let rule = BrokerRule {
            name,
            users: self.list(table, "user", |value| self.number_of(value, "user", |name| self.names.user(name)))?,
            groups: self.list(table, "group", |value| self.number_of(value, "group", |name| self.names.group(name)))?,
            programs: self.list(table, "program", |value| self.program(value))?,
            ports: self.list(table, "ports", |value| self.word(value, PORTS, ports))?.unwrap_or_else(common),
            addresses: self.prefixes(table, "addresses", false)?.unwrap_or_else(everywhere),
            multicast: self.prefixes(table, "multicast", true)?.unwrap_or_else(everywhere),
            queues: table.get("queues").map(|value| self.queues(value)).transpose()?,
        };
        Ok((rule, interfaces.is_none_or(|here| here.contains(&true))))
    }

    /// A value, or the values of a list; `None` where the key is missing.
    fn list<T>(
        &self,
        table: &DeTable<'_>,
        key: &str,
        one: impl Fn(Value<'_, '_>) -> Result<T, RulesError>,
    ) -> Result<Option<Vec<T>>, RulesError> {
        let Some(value) = table.get(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Array(all) if all.is_empty() => {
                let what = format!("expected a value in {key}, and found none: leave {key} out where all are meant");
                Err(self.reader.at(value.span(), what))
            }
            DeValue::Array(all) => all.iter().map(one).collect::<Result<_, _>>().map(Some),
            _ => one(value).map(|one| Some(vec![one])),
        }
    }

    fn number_of(
        &self,
        value: Value<'_, '_>,
        kind: &str,
        find: impl Fn(&str) -> Option<u32>,
    ) -> Result<u32, RulesError> {
        if let Some(number) = toml::integer(value) {
            return number.ok_or_else(|| self.expected(value.span(), WHO));
        }
        let name = self.reader.string(value, WHO)?;
        find(name).ok_or_else(|| {
            self.reader.at(value.span(), format_args!("there is no {kind} {name:?}: name one, or give its number"))
        })
    }

    fn program(&self, value: Value<'_, '_>) -> Result<BrokerProgram, RulesError> {
        self.word(value, PATHS, |text| {
            let path = Some(Path::new(text)).filter(|path| path.is_absolute() && text.len() > 1)?;
            let path = path.to_owned();
            Some(if text.ends_with('/') { BrokerProgram::Folder(path) } else { BrokerProgram::File(path) })
        })
    }

    fn prefixes(&self, table: &DeTable<'_>, key: &str, multicast: bool) -> Result<Option<Vec<Ipv4Prefix>>, RulesError> {
        self.list(table, key, |value| {
            let prefix = self.word(value, PREFIXES, prefix)?;
            if prefix.len() > 0 && prefix.address().is_multicast() != multicast {
                let other = if multicast { "addresses" } else { "multicast" };
                let what = format!("expected no {}: it belongs into {other}", prefix.address());
                return Err(self.reader.at(value.span(), what));
            }
            Ok(prefix)
        })
    }

    fn queues(&self, value: Value<'_, '_>) -> Result<usize, RulesError> {
        let number = toml::integer(value).flatten().map(|number| number as usize);
        number.filter(|number| (1..=QUEUES_MAX).contains(number)).ok_or_else(|| self.expected(value.span(), QUEUES))
    }

    fn word<T>(&self, value: Value<'_, '_>, what: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, RulesError> {
        let text = self.reader.string(value, what)?;
        read(text).ok_or_else(|| self.reader.at(value.span(), format_args!("expected {what}, and found {text:?}")))
    }

    fn expected(&self, span: Range<usize>, what: &str) -> RulesError {
        self.reader.at(span, format_args!("expected {what}"))
    }
}

fn ports(text: &str) -> Option<BrokerPorts> {
    let (protocol, range) = match text.split_once(' ') {
        Some(("udp", range)) => (Some(Protocol::UDP), range),
        Some(("tcp", range)) => (Some(Protocol::TCP), range),
        Some(_) => return None,
        None => (None, text),
    };
    toml::ports(range).filter(|ports| *ports.start() > 0).map(|ports| BrokerPorts { protocol, ports })
}

fn prefix(text: &str) -> Option<Ipv4Prefix> {
    let (address, len) = text.split_once('/').unwrap_or((text, "32"));
    Ipv4Prefix::new(address.parse().ok()?, toml::number(len)?.try_into().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two;

    impl Names for Two {
        fn user(&self, name: &str) -> Option<u32> {
            (name == "trader").then_some(1000)
        }

        fn group(&self, name: &str) -> Option<u32> {
            (name == "trading").then_some(7)
        }
    }

    fn parse(text: &str) -> Result<Vec<BrokerRule>, RulesError> {
        parse_broker("broker.toml", text, "eth1", &Two)
    }

    #[test]
    fn each_key_is_read() {
        let text = "[[allow]]\nuser = ['trader', 1001]\ngroup = 'trading'\nprogram = ['/opt/engine', '/opt/bin/']\n\
                    interface = ['eth0', 'eth1']\nports = ['udp 5000-5010', 'tcp 9000', '319']\n\
                    addresses = '192.0.2.1'\nmulticast = ['239.1.0.0/16', '232.1.1.1']\nqueues = 2\n\
                    [[allow]]\nuser = 'trader'\ninterface = 'eth0'\n\
                    [[allow]]\ngroup = 8\n";
        let rules = parse(text).unwrap();
        let ports = |protocol, ports| BrokerPorts { protocol, ports };
        let first = BrokerRule {
            name: "rule 1 of broker.toml".into(),
            users: Some(vec![1000, 1001]),
            groups: Some(vec![7]),
            programs: Some(vec![BrokerProgram::File("/opt/engine".into()), BrokerProgram::Folder("/opt/bin/".into())]),
            ports: vec![
                ports(Some(Protocol::UDP), 5000..=5010),
                ports(Some(Protocol::TCP), 9000..=9000),
                ports(None, 319..=319),
            ],
            addresses: vec!["192.0.2.1/32".parse().unwrap()],
            multicast: vec!["239.1.0.0/16".parse().unwrap(), "232.1.1.1/32".parse().unwrap()],
            queues: Some(2),
        };
        assert_eq!(rules[0], first);
        let third = &rules[1];
        assert_eq!((third.name.as_str(), rules.len()), ("rule 3 of broker.toml", 2));
        assert_eq!((&third.users, &third.groups, third.queues), (&None, &Some(vec![8]), None));
        assert_eq!(third.ports, [ports(None, 1_024..=65_535)]);
        assert!(third.addresses[0].len() == 0 && third.multicast[0].len() == 0);
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn error_names_line_column_and_what_was_expected() {
        for (text, says) in [
            ("[[allow]]\nqueues = 1\n", "line 1, column 1: expected user, group or program"),
            ("[[allow]]\nuser = 'nobody-here'\n", "line 2, column 8: there is no user \"nobody-here\": name one"),
            ("[[allow]]\nuser = [1, -1]\n", "line 2, column 12: expected a name or a number"),
            ("[[allow]]\nuser = []\n", "line 2, column 8: expected a value in user"),
            ("[[allow]]\nuser = 1\nport = '80'\n", "line 3, column 1: expected user or group or"),
            ("[[allow]]\nuser = 1\nports = '0'\n", "line 3, column 9: expected a port or a range"),
            ("[[allow]]\nuser = 1\nports = 'sctp 9'\n", "and found \"sctp 9\""),
            ("[[allow]]\nuser = 1\nports = 80\n", "line 3, column 9: expected a port or a range"),
            ("[[allow]]\nuser = 1\naddresses = '239.1.1.1'\n", "line 3, column 13: expected no 239.1.1.1"),
            ("[[allow]]\nuser = 1\nmulticast = ['192.0.2.1']\n", "it belongs into addresses"),
            ("[[allow]]\nuser = 1\naddresses = '192.0.2.1/33'\n", "expected an address or a prefix"),
            ("[[allow]]\nprogram = 'engine'\n", "line 2, column 11: expected a path from the root on"),
            ("[[allow]]\nuser = 1\nqueues = 0\n", "line 3, column 10: expected a number of queues"),
            ("[[allow]]\nuser = 1\nqueues = 0x2\n", "expected a number of queues"),
            ("[allow]\nuser = 1\n", "expected a list of tables: [[allow]] has two brackets"),
            ("allow = [1]\n", "line 1, column 10: expected a table"),
            ("[[allow]]\nuser = \n", "broker.toml line 2, column 8"),
        ] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.starts_with("broker.toml line ") && refused.contains(says), "{text:?}: {refused}");
        }
    }
}
