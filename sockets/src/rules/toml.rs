//! Our own file of rules.
//!
//! ```toml
//! default = "offload"              # where no rule fits; offload where this line is missing
//! engines = 1                      # for the threads of each program; 1 where this line is missing
//!
//! [[rules]]                        # the first that fits decides
//! use = "os"                       # offload, os, both, refuse
//! traffic = ["tcp-server"]         # one word or several; all where it is missing
//! local = "192.0.2.0/24:8000-8080" # address or prefix or *, then port or range or *
//! remote = "*:443"
//!
//! [[programs]]                     # asked before the rules for all
//! name = "redis-*"
//! id = "B1"                        # WIREPATH_APPLICATION_ID; any where it is missing
//! default = "os"                   # without it, the rules for all are asked next
//! engines = 4                      # without it, as many as all have
//! rules = [{ use = "offload", traffic = "tcp-server", local = "*:6379" }]
//! ```
//! A default of `offload` or `both` leaves DNS to the kernel, unless a rule says otherwise.

use core::net::Ipv4Addr;
use core::ops::{Range, RangeInclusive};

use ::toml::Spanned;
use ::toml::de::{DeArray, DeTable, DeValue};

use super::error::RulesError;
use super::query::{Role, Traffic};
use super::rule::{Endpoints, Network, Rule, TrafficSet};
use super::set::{ENGINES_MAX, Section, dns};

const ROLES: &str = "\"offload\", \"os\", \"both\" or \"refuse\"";
const TRAFFIC: &str = "\"tcp-server\", \"tcp-client\", \"udp-receiver\", \"udp-sender\" or \"udp-connect\"";
const ENDPOINTS: &str = "an address and a port, such as \"192.0.2.0/24:5000-5010\" or \"*:80\"";

pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Section>, RulesError> {
    let document = document(file, text)?;
    Reader { file, text }.document(document.get_ref())
}

/// The tables of a text.
pub(super) fn document<'t>(file: &str, text: &'t str) -> Result<Spanned<DeTable<'t>>, RulesError> {
    DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        RulesError::at(file, text, at, error.message().replace('\n', ", "))
    })
}

/// Reads values, and says where those are that are none.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Reader<'_> {
    fn document(&self, table: &DeTable<'_>) -> Result<Vec<Section>, RulesError> {
        self.keys(table, &["default", "engines", "rules", "programs"])?;
        let mut sections = Vec::new();
        if let Some(programs) = table.get("programs") {
            for program in self.tables(programs, "programs")? {
                sections.push(self.program(program)?);
            }
        }
        let mut rules = self.rules(table, &format!("of {}", self.file))?;
        let (role, engines) = (self.role(table, "default")?.unwrap_or(Role::Offload), self.engines(table)?);
        leave_dns(&mut rules, role);
        let why = match table.contains_key("default") {
            true => format!("default of {}", self.file),
            false => format!("no rule of {} fits", self.file),
        };
        let otherwise = Some((role, why));
        sections.push(Section { program: "*".to_owned(), id: "*".to_owned(), rules, otherwise, engines });
        Ok(sections)
    }

    fn program(&self, program: &Spanned<DeValue<'_>>) -> Result<Section, RulesError> {
        let table = self.table(program)?;
        self.keys(table, &["name", "id", "default", "engines", "rules"])?;
        let Some(name) = table.get("name") else {
            return Err(self.at(program.span(), "expected a name: [[programs]] says for which program it is"));
        };
        let name = self.string(name, "the file name of a program, or a pattern such as \"redis-*\"")?;
        let id = table.get("id").map(|id| self.string(id, "the id of an application")).transpose()?.unwrap_or("*");
        let mut rules = self.rules(table, &format!("of {name} in {}", self.file))?;
        let role = self.role(table, "default")?;
        if let Some(role) = role {
            leave_dns(&mut rules, role);
        }
        let otherwise = role.map(|role| (role, format!("default of {name} in {}", self.file)));
        let engines = self.engines(table)?;
        Ok(Section { program: name.to_owned(), id: id.to_owned(), rules, otherwise, engines })
    }

    fn engines(&self, table: &DeTable<'_>) -> Result<Option<usize>, RulesError> {
        let Some(value) = table.get("engines") else { return Ok(None) };
        let count = integer(value).flatten().and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| (1..=ENGINES_MAX).contains(count));
        let expected = format_args!("expected a number of engines from 1 to {ENGINES_MAX}");
        Ok(Some(count.ok_or_else(|| self.at(value.span(), expected))?))
    }

    fn rules(&self, table: &DeTable<'_>, whose: &str) -> Result<Vec<Rule>, RulesError> {
        let Some(rules) = table.get("rules") else { return Ok(Vec::new()) };
        let rules = self.tables(rules, "rules")?.iter().enumerate();
        rules.map(|(idx, rule)| self.rule(rule, format!("rule {} {whose}", idx + 1))).collect()
    }

    fn rule(&self, rule: &Spanned<DeValue<'_>>, why: String) -> Result<Rule, RulesError> {
        let table = self.table(rule)?;
        self.keys(table, &["use", "traffic", "local", "remote"])?;
        let Some(role) = self.role(table, "use")? else {
            return Err(self.at(rule.span(), format_args!("expected use, which is {ROLES}")));
        };
        let traffic = table.get("traffic").map(|traffic| self.traffic(traffic)).transpose()?;
        let traffic = traffic.unwrap_or(TrafficSet::ALL);
        let end = |key: &str| table.get(key).map(|end| self.endpoints(end)).transpose();
        let (local, remote) = (end("local")?, end("remote")?);
        if remote.is_some() && !Traffic::ALL.into_iter().any(|kind| kind.has_remote() && traffic.contains(kind)) {
            let span = table.get("remote").map_or(rule.span(), Spanned::span);
            return Err(self.at(span, "expected no remote: a server and a receiver have no peer when they are asked"));
        }
        if role == Role::Both && traffic == TrafficSet::one(Traffic::UdpSender) {
            let span = table.get("use").map_or(rule.span(), Spanned::span);
            return Err(self.at(span, "expected another word than \"both\" for a udp-sender: a datagram leaves once"));
        }
        Ok(Rule { role, traffic, local, remote, why })
    }

    fn traffic(&self, value: &Spanned<DeValue<'_>>) -> Result<TrafficSet, RulesError> {
        let one = |value: &Spanned<DeValue<'_>>| {
            let word = self.string(value, TRAFFIC)?;
            let found = Traffic::ALL.into_iter().find(|traffic| traffic.as_str() == word);
            found.ok_or_else(|| self.at(value.span(), format_args!("expected {TRAFFIC}, and found {word:?}")))
        };
        let DeValue::Array(words) = value.get_ref() else { return Ok(TrafficSet::one(one(value)?)) };
        let mut set = TrafficSet::default();
        for word in words.iter() {
            set.insert(one(word)?);
        }
        if words.is_empty() {
            return Err(self.at(value.span(), format_args!("expected {TRAFFIC}, and found none")));
        }
        Ok(set)
    }

    fn role(&self, table: &DeTable<'_>, key: &str) -> Result<Option<Role>, RulesError> {
        let Some(value) = table.get(key) else { return Ok(None) };
        let word = self.string(value, ROLES)?;
        let role = Role::from_word(word);
        let role = role.ok_or_else(|| self.at(value.span(), format_args!("expected {ROLES}, and found {word:?}")))?;
        Ok(Some(role))
    }

    fn endpoints(&self, value: &Spanned<DeValue<'_>>) -> Result<Endpoints, RulesError> {
        let text = self.string(value, ENDPOINTS)?;
        let found = endpoints(text);
        found.ok_or_else(|| self.at(value.span(), format_args!("expected {ENDPOINTS}, and found {text:?}")))
    }

    /// Refuses a key that is not in `known`, because a misspelled rule would otherwise have no
    /// effect.
    pub(super) fn keys(&self, table: &DeTable<'_>, known: &[&str]) -> Result<(), RulesError> {
        let unknown = table.iter().map(|(key, _)| key).filter(|key| !known.contains(&key.get_ref().as_ref()));
        // The table is ordered by its keys, but a reader looks for the first wrong key in the file.
        match unknown.min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let what = format!("expected {}, and found {:?}", known.join(" or "), key.get_ref());
                Err(self.at(key.span(), what))
            }
        }
    }

    pub(super) fn string<'v>(&self, value: &'v Spanned<DeValue<'_>>, what: &str) -> Result<&'v str, RulesError> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.at(value.span(), format_args!("expected {what}"))),
        }
    }

    pub(super) fn table<'v, 't>(&self, value: &'v Spanned<DeValue<'t>>) -> Result<&'v DeTable<'t>, RulesError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.at(value.span(), "expected a table, such as { use = \"os\" }")),
        }
    }

    /// The list of tables under the key `name`.
    pub(super) fn tables<'v, 't>(
        &self,
        value: &'v Spanned<DeValue<'t>>,
        name: &str,
    ) -> Result<&'v DeArray<'t>, RulesError> {
        match value.get_ref() {
            DeValue::Array(array) => Ok(array),
            _ => {
                let what = format!("expected a list of tables: [[{name}]] has two brackets");
                Err(self.at(value.span(), what))
            }
        }
    }

    pub(super) fn at(&self, span: Range<usize>, what: impl core::fmt::Display) -> RulesError {
        RulesError::at(self.file, self.text, span.start, what)
    }
}

/// The resolver belongs to the machine, not to the program, so DNS stays with the kernel unless a
/// rule matches it.
fn leave_dns(rules: &mut Vec<Rule>, default: Role) {
    if matches!(default, Role::Offload | Role::Both) {
        rules.push(dns());
    }
}

/// `ADDRESS[/LEN][:PORTS]`, each of them also `*`.
fn endpoints(text: &str) -> Option<Endpoints> {
    let (network, range) = text.split_once(':').unwrap_or((text, "*"));
    Some(Endpoints { network: self::network(network)?, ports: ports(range)? })
}

fn network(text: &str) -> Option<Network> {
    if text == "*" {
        return Some(Network::ALL);
    }
    let (address, len) = text.split_once('/').unwrap_or((text, "32"));
    let address: Ipv4Addr = address.parse().ok()?;
    let len = number(len).filter(|&len| len <= 32)?;
    Some(Network::new(address, len.into()))
}

pub(super) fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    if text == "*" {
        return Some(Endpoints::ALL_PORTS);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(first..=last)
}

/// The number of a value that is one: without a sign, and of no other base.
pub(super) fn integer(value: &Spanned<DeValue<'_>>) -> Option<Option<u32>> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().parse().ok()),
        DeValue::Integer(_) => Some(None),
        _ => None,
    }
}

/// Digits alone: `parse` would take a sign, too.
pub(super) fn number(text: &str) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}
