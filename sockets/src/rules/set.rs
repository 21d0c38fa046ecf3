//! All rules of a file, and the search in them.

use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::RangeInclusive;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::error::{LEN_MAX, RulesError};
use super::query::{Decision, Query, Role, Traffic};
use super::rule::{Endpoints, Network, Rule, TrafficSet};
use super::{pattern, toml, vma};

/// The most engines of a program under the preload library: a file's number has four bits for its
/// engine, of whose values one is that of epoll sets.
pub const ENGINES_MAX: usize = 15;

/// Rules, in the order in which they are tried.
#[derive(Clone, Debug)]
pub struct Rules {
    sections: Vec<Section>,
}

/// Rules for some programs. The sections that match a socket's program are tried, the first one
/// first.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// A pattern of the program's file name.
    pub(super) program: String,
    /// `*`, or the application's id.
    pub(super) id: String,
    pub(super) rules: Vec<Rule>,
    /// The decision where none of the rules matches; without it, the next section is consulted.
    pub(super) otherwise: Option<(Role, String)>,
    /// The engines for the program's threads; without it, the next section is consulted.
    pub(super) engines: Option<usize>,
}

impl Section {
    /// As in VMA (`__vma_match_user_defined_id`), a program without an id matches only sections for
    /// every id, and one with the id `*` matches all sections.
    fn fits(&self, program: &str, application_id: Option<&str>) -> bool {
        let by_id = self.id == "*" || application_id.is_some_and(|id| id == "*" || id == self.id);
        by_id && pattern::matches(&self.program, program)
    }
}

impl Rules {
    /// Reads a file of rules: TOML of our own, or libvma.conf.
    ///
    /// # Errors
    /// The file cannot be read, or is not a file of rules; the sentence says where, and what was
    /// expected.
    pub fn load(path: &Path) -> Result<Self, RulesError> {
        let (name, text) = read(path)?;
        Self::parse(&name, &text)
    }

    /// The rules in `text`; `name` is the name of the text's file.
    ///
    /// # Errors
    /// As of [`Self::load`].
    pub fn parse(name: &str, text: &str) -> Result<Self, RulesError> {
        // The byte order mark is skipped, as in TOML, so that columns do not count it.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let sections = if vma::is_libvma(text) { vma::parse(name, text) } else { toml::parse(name, text) };
        Ok(Self { sections: sections? })
    }

    /// The decision about a socket, and the rule that made it. Called where a program names an
    /// address; allocates nothing.
    pub fn role(&self, query: &Query<'_>) -> Decision<'_> {
        for section in self.sections_of(query.program, query.application_id) {
            if let Some(rule) = section.rules.iter().find(|rule| rule.fits(query)) {
                return Decision { role: rule.role, why: &rule.why };
            }
            if let Some((role, why)) = &section.otherwise {
                return Decision { role: *role, why };
            }
        }
        Decision { role: Role::Offload, why: "no rule fits" }
    }

    /// The engines that the file asks for, for the threads of a program; `None` if it says nothing
    /// of them. The names are those of [`Query`].
    pub fn engines(&self, program: &str, application_id: Option<&str>) -> Option<usize> {
        self.sections_of(program, application_id).find_map(|section| section.engines)
    }

    /// The most engines that the file gives to any program.
    pub fn engines_max(&self) -> usize {
        self.sections.iter().filter_map(|section| section.engines).max().unwrap_or(1)
    }

    /// Ports to which a program's datagrams may be another's than ours, by a rule or by a default:
    /// all from the lowest to the highest, empty if there are none. Only for these need each
    /// destination be asked about. The names are those of [`Query`].
    pub fn kept_sender_ports(&self, program: &str, application_id: Option<&str>) -> RangeInclusive<u16> {
        let keeps = |rule: &&Rule| rule.role != Role::Offload && rule.traffic.contains(Traffic::UdpSender);
        let ports = |rule: &Rule| rule.remote.as_ref().map_or(Endpoints::ALL_PORTS, |remote| remote.ports.clone());
        let of_section = |section: &Section| {
            let otherwise = section.otherwise.as_ref().filter(|(role, _)| *role != Role::Offload);
            let rules = section.rules.iter().filter(keeps).map(ports);
            rules.chain(otherwise.map(|_| Endpoints::ALL_PORTS)).collect::<Vec<_>>()
        };
        let all = self.sections_of(program, application_id).flat_map(of_section);
        let hull = |a: RangeInclusive<u16>, b: RangeInclusive<u16>| *a.start().min(b.start())..=*a.end().max(b.end());
        #[allow(clippy::reversed_empty_ranges)] // empty is what it means
        all.reduce(hull).unwrap_or(1..=0)
    }

    /// Whether all sockets of a program are the kernel's, whatever they name. The names are those
    /// of [`Query`].
    pub fn leave_all(&self, program: &str, application_id: Option<&str>) -> bool {
        for section in self.sections_of(program, application_id) {
            let is_default = |(role, _): &(Role, String)| *role == Role::Os;
            match section.otherwise.as_ref().map(is_default) {
                _ if section.rules.iter().any(|rule| rule.role != Role::Os) => return false,
                Some(leaves) => return leaves,
                None => (),
            }
        }
        false
    }

    /// Whether the rules refuse anything to a program. The names are those of [`Query`].
    pub fn may_refuse(&self, program: &str, application_id: Option<&str>) -> bool {
        self.sections_of(program, application_id).any(|section| {
            section.rules.iter().any(|rule| rule.role == Role::Refuse)
                || section.otherwise.as_ref().is_some_and(|(role, _)| *role == Role::Refuse)
        })
    }

    /// Whether a program's sockets may be ours by their groups alone: by a rule of receivers, where
    /// others or the default leave the address that they are bound to.
    pub fn may_give_groups(&self, program: &str, application_id: Option<&str>) -> bool {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let traffic = Traffic::UdpReceiver;
        let of_address = self.role(&Query { program, application_id, traffic, local: any, remote: None }).role;
        let gives = |rule: &Rule| {
            rule.role != of_address && rule.traffic.contains(traffic) && rule.local.is_some() && rule.remote.is_none()
        };
        self.sections_of(program, application_id).any(|section| section.rules.iter().any(gives))
    }

    fn sections_of(&self, program: &str, application_id: Option<&str>) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(move |section| section.fits(program, application_id))
    }
}

/// Opens a file, or a pipe that this process has inherited, and waits for neither: a FIFO that
/// nobody writes to would hold the program that the library is in for ever. `None` for all others.
fn open(path: &Path) -> io::Result<Option<File>> {
    // `O_NONBLOCK`: to open a FIFO waits for its writer.
    const O_NONBLOCK: i32 = 0o4000;
    let file = File::options().read(true).custom_flags(O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(Some(file));
    }
    // Whoever writes to such a pipe is there already, or has ended; its reads may wait for bytes.
    if kind.is_fifo() && is_inherited_pipe(path) { File::open(path).map(Some) } else { Ok(None) }
}

/// Whether a path, such as /dev/fd/63, is that of a pipe without a name.
fn is_inherited_pipe(path: &Path) -> bool {
    let mut at = path.to_owned();
    // /dev/stdin is a link to a link.
    for _ in 0..4 {
        let Ok(to) = fs::read_link(&at) else { return false };
        if to.to_string_lossy().starts_with("pipe:[") {
            return true;
        }
        at = at.parent().unwrap_or(Path::new("/")).join(to);
    }
    false
}

/// The name of a file, and its text.
pub(super) fn read(path: &Path) -> Result<(String, String), RulesError> {
    let unreadable = |error| RulesError::Unreadable { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = open(path).map_err(unreadable)?.ok_or_else(|| RulesError::NoFile { path: path.to_owned() })?;
    file.take(LEN_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LEN_MAX {
        return Err(RulesError::TooLong { path: path.to_owned() });
    }
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    // A comment may have another encoding; in a value such bytes are no valid address.
    Ok((name, String::from_utf8_lossy(&bytes).into_owned()))
}

impl Default for Rules {
    /// DNS (UDP to port 53) stays with the kernel, because the resolver belongs to the machine; all
    /// other traffic is offloaded.
    fn default() -> Self {
        let (program, id) = ("*".to_owned(), "*".to_owned());
        Self { sections: vec![Section { program, id, rules: vec![dns()], otherwise: None, engines: None }] }
    }
}

/// The last rule of each TOML file.
pub(super) fn dns() -> Rule {
    let mut traffic = TrafficSet::one(Traffic::UdpConnect);
    traffic.insert(Traffic::UdpSender);
    let remote = Some(Endpoints { network: Network::ALL, ports: 53..=53 });
    Rule { role: Role::Os, traffic, local: None, remote, why: "DNS is the kernel's".to_owned() }
}
