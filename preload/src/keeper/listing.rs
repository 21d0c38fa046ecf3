//! The listing of this process for `wirepath sockets`. The keeper writes it about once a second.

use sockets::listing::{Entry, Header, Listing, Place as Whose, State};
use sockets::{Kind, SocketId};

use crate::calls::offload;
use crate::config;
use crate::engine::Engine;
use crate::engine::file::{File, Owner, Socket, What};

/// The file in shared memory, and the number of records in use.
pub(crate) struct Published {
    listing: Listing,
    used: usize,
}

impl Published {
    /// Makes the file. If that fails, the program runs all the same, and is not listed.
    pub(crate) fn new() -> Option<Self> {
        let config = config::get()?;
        let listing = Listing::create(&config.program).inspect_err(|error| {
            config::say(format_args!("wirepath sockets will not show this program: {error}"));
        });
        Some(Self { listing: listing.ok()?, used: 0 })
    }

    /// Writes all sockets of the engine.
    pub(crate) fn write(&mut self, engine: &mut Engine) {
        let sockets: Vec<Listed> = engine.files.iter().filter_map(|(_, file)| Listed::of(file)).collect();
        let room = self.listing.capacity();
        for (slot, socket) in sockets.iter().take(room).enumerate() {
            let entry = socket.entry(engine);
            self.listing.set(slot, &entry);
        }
        let used = sockets.len().min(room);
        (used..self.used).for_each(|slot| self.listing.clear(slot));
        self.used = used;
        if let Some(config) = config::get() {
            self.listing.header(&Header {
                program: config.program.as_str().into(),
                interface: config.port.interface().into(),
                turns: engine.turns,
                sleeps: engine.sleeps,
                wakeups: engine.wakeups,
                unlisted: (sockets.len() - used) as u64,
                ..Header::default()
            });
        }
    }
}

/// The listed values of a file.
struct Listed {
    fd: i32,
    kind: Kind,
    place: Owner,
    why: &'static str,
    sets: u32,
    listens: bool,
    opened: std::time::SystemTime,
}

impl Listed {
    fn of(file: &File) -> Option<Self> {
        let What::Socket(Socket { kind, place, why, opened, watches, is_listener, .. }) = &file.what else {
            return None;
        };
        let (kind, place, why, opened) = (*kind, *place, *why, *opened);
        Some(Self {
            fd: *file.fds.first()?,
            kind,
            place,
            why,
            sets: watches.len() as u32,
            listens: *is_listener,
            opened,
        })
    }

    fn entry(&self, engine: &mut Engine) -> Entry<'static> {
        let place = match self.place {
            Owner::Twin if self.why == "not decided yet" => Whose::Undecided,
            Owner::Twin => Whose::Kernel,
            Owner::Ours { hears_twin: true, .. } => Whose::Both,
            Owner::Ours { .. } => Whose::Ours,
        };
        let entry = Entry {
            fd: self.fd,
            kind: self.kind,
            place,
            why: self.why.into(),
            epoll_sets: self.sets,
            opened: self.opened,
            active: std::time::SystemTime::now(),
            state: if self.listens { State::Listen } else { State::Closed },
            ..Entry::default()
        };
        match self.place {
            Owner::Twin => Entry { local: offload::name_of(self.fd).unwrap_or(crate::engine::file::ANY), ..entry },
            Owner::Ours { id, .. } => self.of_ours(entry, id, engine),
        }
    }

    fn of_ours(&self, entry: Entry<'static>, id: SocketId, engine: &mut Engine) -> Entry<'static> {
        let filled = engine.call(|sockets, cx| {
            let remote = sockets.peer_addr(id).ok();
            let state = match (entry.state, remote, self.kind) {
                (State::Listen, ..) => State::Listen,
                (_, Some(_), Kind::Stream) => State::Established,
                (_, None, Kind::Datagram) | (_, Some(_), Kind::Datagram) => State::Bound,
                (_, None, Kind::Stream) => State::Closed,
            };
            Ok(Entry {
                state,
                local: sockets.local_addr(id)?,
                remote,
                receive_queue: sockets.readable_len(id)? as u64,
                receive_limit: u64::from(sockets.options(id)?.receive_buffer),
                send_queue: sockets.unsent_len(id, cx).unwrap_or(0) as u64,
                drops: sockets.dropped(id)?,
                ..entry.clone()
            })
        });
        filled.unwrap_or(entry)
    }
}
