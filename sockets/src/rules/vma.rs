//! libvma.conf, as VMA's own parser reads it (`src/vma/util/config_parser.y`, `config_scanner.l`,
//! `match.cpp`).
//!
//! ```text
//!   application-id PROGRAM ID            the rules below it are for this program
//!   use TRANSPORT ROLE ADDRESS:PORTS[:ADDRESS:PORTS]
//!   log [destination ...] [min-level N]  read, and without effect here
//! ```
//! The first section that matches the program decides, by its first rule that matches. Where no
//! rule matches, the socket is offloaded, and later sections are not consulted. `use sdp` and
//! `use sa` never match, because VMA has neither. VMA takes a wrong line as the end of its file and
//! continues with the lines before it; we refuse the file.

use core::net::Ipv4Addr;
use core::ops::RangeInclusive;

use super::error::RulesError;
use super::query::{Role, Traffic};
use super::rule::{Endpoints, Network, Rule, TrafficSet};
use super::set::Section;

/// Whether the first word of `text` begins a statement of libvma.conf, and no key of TOML.
pub(super) fn is_libvma(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let Some(line) = lines.find(|line| !line.is_empty() && !line.starts_with('#')) else { return false };
    let word_len = line.find(|letter| !is_of_word(letter)).unwrap_or(line.len());
    let (word, rest) = line.split_at(word_len);
    ["application-id", "use", "log"].contains(&word) && !rest.trim_start().starts_with(['=', '.'])
}

pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Section>, RulesError> {
    let mut cursor = Cursor { file, text, at: 0 };
    let mut sections: Vec<Section> = Vec::new();
    // The section that a rule goes into; rules in front of the first are for all programs.
    let mut current = None;
    while cursor.skip_lines() {
        let start = cursor.at;
        match cursor.word() {
            "application-id" => {
                let program = cursor.name("the name of a program, or *")?;
                let id = cursor.name("the id of an application, or *")?;
                current = Some(section(&mut sections, file, program, id));
            }
            "use" => {
                let idx = current.unwrap_or_else(|| section(&mut sections, file, "*", "*"));
                current = Some(idx);
                if let Some(rule) = cursor.rule(start)? {
                    sections[idx].rules.push(rule);
                }
            }
            "log" => cursor.log()?,
            _ => return Err(cursor.expected(start, "application-id, use or log")),
        }
    }
    Ok(sections)
}

/// The section of this program and id: the existing one, or a new one at the end.
fn section(sections: &mut Vec<Section>, file: &str, program: &str, id: &str) -> usize {
    let found = sections.iter().position(|section| section.program == program && section.id == id);
    found.unwrap_or_else(|| {
        let otherwise = Some((Role::Offload, format!("no line of {file} fits")));
        let (program, id) = (program.to_owned(), id.to_owned());
        sections.push(Section { program, id, rules: Vec::new(), otherwise, engines: None });
        sections.len() - 1
    })
}

/// The position of the parser.
struct Cursor<'a> {
    file: &'a str,
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Blanks and a comment, to the next word of this line or to its end.
    fn skip_blanks(&mut self) {
        let rest = self.rest();
        let rest = rest.trim_start_matches([' ', '\t', '\r']);
        self.at = self.text.len() - rest.len();
        if rest.starts_with('#') {
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    /// To the next statement; false at the end of the file.
    fn skip_lines(&mut self) -> bool {
        loop {
            self.skip_blanks();
            if !self.rest().starts_with('\n') {
                return !self.rest().is_empty();
            }
            self.at += 1;
        }
    }

    /// The next keyword; empty where something different follows.
    fn word(&mut self) -> &'a str {
        self.skip_blanks();
        let rest = self.rest();
        let len = rest.find(|letter| !is_of_word(letter)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// The next run of anything but blanks.
    fn name(&mut self, what: &str) -> Result<&'a str, RulesError> {
        self.skip_blanks();
        let rest = self.rest();
        let len = rest.find([' ', '\t', '\r', '\n']).unwrap_or(rest.len());
        if len == 0 {
            return Err(self.expected(self.at, what));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    /// Consumes the sign if it is next, and returns whether it was.
    fn takes(&mut self, sign: char) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len_utf8() } else { 0 };
        found
    }

    fn sign(&mut self, sign: char, what: &str) -> Result<(), RulesError> {
        if self.takes(sign) { Ok(()) } else { Err(self.expected(self.at, what)) }
    }

    /// A number up to `most`. As VMA's, it has no zeros in front.
    fn number(&mut self, most: u32, what: &str) -> Result<u32, RulesError> {
        self.skip_blanks();
        let (start, rest) = (self.at, self.rest());
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let len = if rest.starts_with('0') { 1 } else { digits };
        match rest[..len].parse() {
            Ok(number) if number <= most => {
                self.at += len;
                Ok(number)
            }
            _ => Err(self.expected(start, what)),
        }
    }

    /// The rest of a `use` statement; `None` for a transport that VMA does not have, whose rule
    /// matches nothing.
    fn rule(&mut self, start: usize) -> Result<Option<Rule>, RulesError> {
        let role = self.transport()?;
        self.skip_blanks();
        let at = self.at;
        let word = self.word();
        let found =
            Traffic::ALL.into_iter().find(|traffic| word.replace('_', "-") == traffic.as_str() && !word.contains('-'));
        let Some(traffic) = found else {
            return Err(self.expected(at, "tcp_server, tcp_client, udp_receiver, udp_sender or udp_connect"));
        };
        let first = self.endpoints()?;
        let second = if self.takes(':') { self.endpoints()? } else { None };
        // For traffic with a peer the first is the peer's and the second our own; for other traffic
        // VMA parses the second and ignores it.
        let (local, remote) = match traffic {
            Traffic::TcpServer | Traffic::UdpReceiver => (first, None),
            Traffic::UdpSender => (None, first),
            Traffic::TcpClient | Traffic::UdpConnect => (second, first),
        };
        let line = self.text[..start].matches('\n').count() + 1;
        let why = format!("line {line} of {}", self.file);
        Ok(role.map(|role| Rule { role, traffic: TrafficSet::one(traffic), local, remote, why }))
    }

    fn transport(&mut self) -> Result<Option<Role>, RulesError> {
        if self.takes('*') {
            return Ok(Some(Role::Offload));
        }
        let at = self.at;
        match self.word() {
            "vma" | "xlio" => Ok(Some(Role::Offload)),
            "os" => Ok(Some(Role::Os)),
            "sdp" | "sa" => Ok(None),
            _ => Err(self.expected(at, "vma, xlio or os")),
        }
    }

    /// `ADDRESS[/LEN]:PORTS`; `None` for `*:*`.
    fn endpoints(&mut self) -> Result<Option<Endpoints>, RulesError> {
        let network = self.network()?;
        self.sign(':', "a colon and a port")?;
        let ports = self.ports()?;
        let all = network == Network::ALL && ports == Endpoints::ALL_PORTS;
        Ok((!all).then_some(Endpoints { network, ports }))
    }

    fn network(&mut self) -> Result<Network, RulesError> {
        const WHAT: &str = "an IPv4 address, or *";
        if self.takes('*') {
            return Ok(Network::ALL);
        }
        let mut octets = [0; 4];
        for (idx, octet) in octets.iter_mut().enumerate() {
            if idx > 0 {
                self.sign('.', "the next number of an IPv4 address")?;
            }
            *octet = self.number(255, if idx == 0 { WHAT } else { "a number of 0 to 255" })? as u8;
        }
        let len = if self.takes('/') { self.number(32, "the length of a prefix, 0 to 32")? } else { 32 };
        Ok(Network::new(Ipv4Addr::from(octets), len))
    }

    fn ports(&mut self) -> Result<RangeInclusive<u16>, RulesError> {
        if self.takes('*') {
            return Ok(Endpoints::ALL_PORTS);
        }
        let first = self.port("a port, a range of ports, or *")?;
        if !self.takes('-') {
            return Ok(first..=first);
        }
        self.skip_blanks();
        let at = self.at;
        let last = self.port("the last port of the range, up to 65535")?;
        if last < first {
            return Err(self.expected(at, &format!("a last port of {first} or more")));
        }
        Ok(first..=last)
    }

    fn port(&mut self, what: &str) -> Result<u16, RulesError> {
        // In range, as `number` has checked.
        self.number(u16::MAX.into(), what).map(|port| port as u16)
    }

    /// The destination of VMA's messages. Ours always go to standard error. The keywords of VMA's
    /// documentation and those of its scanner differ; we accept both.
    fn log(&mut self) -> Result<(), RulesError> {
        loop {
            self.skip_blanks();
            let start = self.at;
            match self.word() {
                "destination" => {
                    self.skip_blanks();
                    let at = self.at;
                    match self.word() {
                        "stderr" | "ystderr" | "syslog" => {}
                        "file" | "yfile" => drop(self.name("the name of a file")?),
                        _ => return Err(self.expected(at, "stderr, syslog or file")),
                    }
                }
                "min-level" => drop(self.number(9, "a level of 1 to 9")?),
                _ => {
                    self.at = start;
                    return Ok(());
                }
            }
        }
    }

    fn expected(&self, at: usize, what: &str) -> RulesError {
        let rest = &self.text[at..];
        let len = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let found: String = rest[..len].chars().take(40).collect();
        let found = if found.is_empty() { "the line ends".to_owned() } else { format!("found {found:?}") };
        RulesError::at(self.file, self.text, at, format_args!("expected {what}, and {found}"))
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphabetic() || letter == '_' || letter == '-'
}
