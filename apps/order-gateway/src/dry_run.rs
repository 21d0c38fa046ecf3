//! Whether a standby could take over now: it recovers a copy of its journal as a take-over would,
//! and looks at what else a start needs, again and again, on a thread of its own. When the primary
//! is gone it is too late to learn that a symbol is missing in the limits, or that somebody else
//! has the control socket.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use order_entry::journal::{HEADER_LEN, JournalError, Rebuild};
use order_entry::risk::KillSwitch;
use order_entry::session::VenueSession;
use order_gateway::host::Host;
use order_gateway::kernel::Kernel;
use order_gateway::{Config, Core, Error, LimitsFile, VenueClient};
use wirepath::worker::affinity::spawn_helper;

use crate::readiness::obstacles;
use crate::{LONG_NAME, core_config, not_recovered};

/// The time between two looks at a journal, and the one in which a journal that begins is seen.
const INTERVAL: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(500);
/// The journal is read in such pieces. No journal has so many zeros between two records.
const PIECE: usize = 1 << 20;

/// The thread, which ends with this value.
pub(crate) struct DryRun(Arc<AtomicBool>);

impl DryRun {
    /// Looks at once, and then again and again. What stands against a take-over is said once.
    pub(crate) fn start(config: &Path, say: fn(&str)) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let (path, is_ended) = (config.to_owned(), ended.clone());
        spawn_helper(thread::Builder::new().name("dry-run".into()), move || run(&path, &is_ended, say))?;
        Ok(Self(ended))
    }
}

impl Drop for DryRun {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What stands against a take-over.
#[derive(Debug)]
struct Obstacle {
    error: Error,
    /// What it is, without the numbers that change while the primary trades.
    kind: String,
}

impl From<Error> for Obstacle {
    fn from(error: Error) -> Self {
        Self { kind: error.to_string(), error }
    }
}

impl Obstacle {
    fn of_journal(error: JournalError, config: &Config) -> Self {
        let kind = match error {
            JournalError::Missing(missing) => format!("no instrument {}", missing.symbol),
            JournalError::MissingStrategy(missing) => format!("no strategy {}", missing.name),
            JournalError::Unknown(_) => "unknown records".to_owned(),
            other => other.to_string(),
        };
        Self { error: not_recovered(error, config), kind }
    }
}

/// What was found last, by its kinds.
#[derive(Debug, Default)]
struct Told(Vec<String>);

impl Told {
    /// What a person is to hear, where it is another thing than before.
    fn sentences(&mut self, found: Vec<Obstacle>) -> Vec<String> {
        let (kinds, errors): (Vec<_>, Vec<_>) = found.into_iter().map(|Obstacle { kind, error }| (kind, error)).unzip();
        let before = core::mem::replace(&mut self.0, kinds);
        if self.0.is_empty() && !before.is_empty() {
            return vec!["this standby could take over again".to_owned()];
        }
        let new = self.0.iter().zip(errors).filter(|(kind, _)| !before.contains(kind));
        new.map(|(_, error)| format!("this standby could not take over: {error}")).collect()
    }
}

fn run(path: &Path, is_ended: &AtomicBool, say: fn(&str)) {
    let mut told = Told::default();
    while !is_ended.load(Ordering::Relaxed) {
        let (found, has_journal) = look(path);
        for sentence in told.sentences(found) {
            if !is_ended.load(Ordering::Relaxed) {
                say(&sentence);
            }
        }
        let steps = if has_journal { INTERVAL.as_millis() / STEP.as_millis() } else { 1 };
        for _ in 0..steps {
            if is_ended.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(STEP);
        }
    }
}

/// What stands against a take-over by the files as they are now, and whether there is a journal
/// yet.
fn look(path: &Path) -> (Vec<Obstacle>, bool) {
    let (config, limits) = match Config::read_with_limits(path) {
        Ok(both) => both,
        Err(error) => return (vec![error.into()], true),
    };
    let mut found: Vec<_> = obstacles(&config).into_iter().map(Obstacle::from).collect();
    let replayed = could_replay(&config, &limits);
    let has_journal = *replayed.as_ref().unwrap_or(&true);
    found.extend(replayed.err());
    (found, has_journal)
}

/// Does what a take-over does with the journal, the configuration and the limits, in memory of its
/// own. Whether there is a journal yet.
fn could_replay(config: &Config, limits: &LimitsFile) -> Result<bool, Obstacle> {
    let failed = |error: io::Error| Error::at("journal", &config.journal.path, error, "a take-over reads it");
    let journal = records_of(&config.journal.path).map_err(failed)?;
    if journal.iter().take(HEADER_LEN).all(|byte| *byte == 0) {
        return Ok(false);
    }
    let kernel = Kernel::start();
    let of = (config, limits);
    match config.client(&limits.instruments(), kernel.epoch_offset_ns()) {
        Some(VenueClient::Ouch(client)) => recover(client, of, journal, &kernel),
        Some(VenueClient::Ouch42(client)) => recover(client, of, journal, &kernel),
        Some(VenueClient::Fix(client)) => recover(client, of, journal, &kernel),
        Some(VenueClient::Boe2(client)) => recover(client, of, journal, &kernel),
        Some(VenueClient::Boe3(client)) => recover(client, of, journal, &kernel),
        Some(VenueClient::Ilink3(client)) => recover(client, of, journal, &kernel),
        None => Err(Error::failed(LONG_NAME).into()),
    }
    .map(|_| true)
}

fn recover<S: VenueSession>(
    session: S,
    (config, limits): (&Config, &LimitsFile),
    journal: Vec<u8>,
    kernel: &Kernel,
) -> Result<Rebuild, Obstacle> {
    // A switch of its own: one that was thrown before is none of this run.
    let kill = KillSwitch::new();
    let core_config = core_config((config, limits), (&kill, true), kernel);
    let recovered = Core::recover(core_config, session, journal, config.journal.reserve());
    recovered.map(|(_, rebuild)| rebuild).map_err(|error| Obstacle::of_journal(error, config))
}

/// The journal as far as it has records. The file is read as any other, because a primary may write
/// into the mapping by RDMA while nobody has a reference to it; a record that is half there ends
/// what is recovered.
fn records_of(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, mut journal) = (File::open(path)?, Vec::new());
    loop {
        let before = journal.len();
        let read = file.by_ref().take(PIECE as u64).read_to_end(&mut journal)?;
        if read == 0 || journal[before..].iter().all(|byte| *byte == 0) {
            return Ok(journal);
        }
    }
}

#[cfg(test)]
mod tests {
    use market::Symbol;
    use order_entry::journal::{MissingInstrument, MissingStrategy, NO_NAME};

    use super::*;

    #[test]
    fn obstacle_is_told_once_while_its_numbers_change() {
        let config = Config::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/example.toml"))).unwrap();
        let symbol = |name: &str| Symbol::new(name).unwrap();
        let instrument = |name, position, orders| {
            JournalError::Missing(MissingInstrument { symbol: symbol(name), position, orders })
        };
        let mut told = Told::default();
        let mut tell = |error: JournalError| told.sentences(vec![Obstacle::of_journal(error, &config)]).pop();
        assert!(tell(instrument("ZIEXT", 100, 1)).unwrap().contains("ZIEXT, of which the journal has 100 shares"));
        assert_eq!(tell(instrument("ZIEXT", 200, 3)), None);
        assert!(tell(instrument("ZVZZT", 200, 3)).unwrap().contains("ZVZZT"));
        assert_eq!(tell(instrument("ZVZZT", -5, 0)), None);
        let strategy = |orders| JournalError::MissingStrategy(MissingStrategy { name: NO_NAME, orders });
        assert!(tell(strategy(2)).unwrap().contains("2 live orders"));
        assert_eq!(tell(strategy(4)), None);
        assert!(tell(JournalError::Unknown(7)).is_some());
        assert_eq!(tell(JournalError::Unknown(8)), None);
        assert_eq!(told.sentences(vec![]), ["this standby could take over again"]);
        assert_eq!(told.sentences(vec![]), [""; 0]);
    }

    #[test]
    fn each_obstacle_is_told_once_and_that_all_are_gone_behind_the_last() {
        let obstacle = |name: &str| Obstacle::from(Error::failed(name));
        let mut told = Told::default();
        let mut tell = |names: &[&str]| told.sentences(names.iter().map(|name| obstacle(name)).collect());
        assert_eq!(tell(&["a", "b"]), ["this standby could not take over: a", "this standby could not take over: b"]);
        assert_eq!(tell(&["b"]), [""; 0]);
        assert_eq!(tell(&["c", "b"]), ["this standby could not take over: c"]);
        assert_eq!(tell(&[]), ["this standby could take over again"]);
    }
}
