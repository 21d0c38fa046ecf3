//! What runs out while a program runs: one sentence for each, once. The program itself has the
//! error of its call at most, and often none, because a peer or a thread waits instead.

use core::sync::atomic::{AtomicU8, Ordering};

use sockets::Errno;
use wirepath::counters::{Reading, Sample};

use crate::config;

/// What may run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scarce {
    /// Descriptors, of the process or of the system.
    Descriptors,
    /// Room for connections, and for the rules that bring their frames.
    Connections,
    /// Packet buffers.
    Buffers,
    /// Room for listeners, and for the rules that bring their frames.
    Listeners,
}

/// Says what the error of a call shows to have run out, if anything. The call has made a socket, or
/// a connection.
pub(crate) fn say_of(error: Errno) {
    match error {
        Errno::EMFILE | Errno(libc::ENFILE) => Scarce::Descriptors.say(),
        Errno::ENOBUFS => Scarce::Connections.say(),
        _ => (),
    }
}

impl Scarce {
    /// Says so, unless that was said before.
    #[cold]
    pub(crate) fn say(self) {
        static SAID: AtomicU8 = AtomicU8::new(0);
        let bit = 1 << self as u8;
        if SAID.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            config::say(self.sentence());
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Descriptors => {
                "no descriptor is left (EMFILE): connections wait to be accepted, and a thread that waits looks each \
                 5 ms instead of sleeping, until some are closed; raise the limit of open files (ulimit -n, \
                 LimitNOFILE=)"
            }
            Self::Connections => {
                "there is no room for another connection: connect fails with ENOBUFS, and peers that call get no \
                 answer, until one has ended; give the program more (--connections, WIREPATH_CONNECTIONS), or leave some \
                 to the kernel by rules"
            }
            Self::Listeners => {
                "there is no room for another listener, or none in the NIC for its rule: listen fails with ENOBUFS; give \
                 the program more connections, of which each 64 have room for a listener (--connections, \
                 WIREPATH_CONNECTIONS), or leave some listeners to the kernel by rules"
            }
            Self::Buffers => {
                "all packet buffers are taken: frames are lost, and bytes wait to be sent, until some are free \
                 (pool/exhausted in `wirepath stats`); have the program read what waits in its sockets, give it more \
                 buffers (--buffers, WIREPATH_BUFFERS), or its sockets less room (SO_RCVBUF, SO_SNDBUF)"
            }
        }
    }
}

/// What the counters of a worker show to have run out.
pub(crate) fn found_in(samples: &[Sample]) -> impl Iterator<Item = Scarce> {
    const SHOWN_BY: [(&str, Scarce); 2] =
        [("/tcp/drop/table_full", Scarce::Connections), ("/pool/exhausted", Scarce::Buffers)];
    let shown = |sample: &Sample| {
        let is_counted = matches!(sample.reading, Reading::Counter(1..) | Reading::Gauge(1..));
        SHOWN_BY.iter().find(|(name, _)| is_counted && sample.name.ends_with(name)).map(|(_, scarce)| *scarce)
    };
    samples.iter().filter_map(shown)
}
