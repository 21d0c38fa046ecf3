//! Rare behavior of apps, in two of each seven seeds: a pacing rate, keepalive within seconds, a
//! user timeout, closing both directions at once, options that change while data flows, templates,
//! no reading while the stack accepts none of their data. It is drawn from random numbers of its
//! own, so that the runs of the other seeds do not change.

use wirepath::pipeline::tcp::{ConnectionOptions, Keepalive, Linger};
use wirepath::time::Duration;

use super::end::{EndPlan, Role, WriteMethod, mix};
use super::scenario::Draw;
use super::script::{Script, Stack};
use crate::mutate::Random;

/// Whether the apps of a seed have rare behavior.
pub fn is_rare(seed: u64) -> bool {
    matches!(seed % 7, 0 | 3)
}

/// Gives the apps of a script rare behavior.
pub fn vary(script: &mut Script) {
    let mut draw = Draw(Random::new(mix(script.seed, 4)));
    for listener in &mut script.listeners {
        draw.vary_options(&mut listener.options);
    }
    for session in &mut script.sessions {
        draw.vary_options(&mut session.options);
        for (end, host) in session.ends.iter_mut().zip([session.client, session.server]) {
            draw.vary_plan(end);
            // smoltcp's apps can only close.
            end.hangs_up &= script.hosts[host].stack == Stack::Wirepath;
        }
    }
    let_some_hold_back(script);
}

/// Half of the echoing apps, and some of the others, do not read while they cannot write. Only one
/// end of a session does so, because two such ends would wait for each other.
fn let_some_hold_back(script: &mut Script) {
    let mut draw = Draw(Random::new(mix(script.seed, 5)));
    for session in &mut script.sessions {
        let side = if session.ends[1].role == Role::Echo { 1 } else { draw.0.below(2) };
        let (end, host) = (&mut session.ends[side], [session.client, session.server][side]);
        if draw.one_in(2) && script.hosts[host].stack == Stack::Wirepath {
            end.holds_back = true;
            // This end waits only for room, and neither for a time nor for a buffer.
            (end.writes, end.write_gap) = (WriteMethod::Copies, 0);
            end.pauses.clear();
        }
    }
}

impl Draw {
    /// Varies the options that an app sets before it connects or listens.
    fn vary_options(&mut self, options: &mut ConnectionOptions) {
        if self.one_in(3) {
            // At the lowest rate a megabyte takes 20 seconds.
            options.pacing_rate = Some(self.of(&[50_000, 500_000, 5_000_000, 500_000_000]));
        }
        if self.one_in(3) && options.keepalive.is_none() {
            // Probes are frequent, and they go on for longer than any fault.
            let idle = Duration::from_millis(self.of(&[50, 500, 2_000]));
            let interval = Duration::from_millis(self.of(&[100, 500]));
            options.keepalive = Some(Keepalive { idle, interval, count: 250 });
        }
        if self.one_in(6) {
            options.user_timeout = Some(Duration::from_secs(self.of(&[20, 30, 60])));
        }
        options.linger = self.of(&[
            Linger::Background,
            Linger::For(Duration::ZERO),
            Linger::For(Duration::from_millis(1)),
            Linger::For(Duration::from_secs(2)),
        ]);
    }

    /// Varies the actions of an app on its connection.
    fn vary_plan(&mut self, end: &mut EndPlan) {
        if self.one_in(3) {
            end.writes = WriteMethod::Fires;
        }
        end.hangs_up = self.one_in(8);
        if self.one_in(3) {
            let mut places: Vec<u64> = (0..self.between(1, 4)).map(|_| self.spread(64 << 10)).collect();
            places.sort_unstable();
            end.changes = places.into_iter().map(|at| (at, self.options())).collect();
        }
    }
}
