//! Random segments and calls, near the valid ones.

use proptest::prelude::*;

use super::script::accepted_with;
use super::*;
use crate::wire::tcp::{TcpFlags, Timestamps};

/// A segment near a valid one.
fn any_segment() -> impl Strategy<Value = (u8, i32, i32, usize, Option<i32>, u64)> {
    let near = prop_oneof![Just(0), -3..4i32, -70_000..70_000i32, any::<i32>()];
    (any::<u8>(), near.clone(), near.clone(), 0usize..40, prop::option::of(near), 0u64..5_000)
}

proptest! {
    /// For any input, nothing panics, nothing is kept without bound, and all buffers are freed.
    #[test]
    fn segments_at_random_break_nothing(
        steps in prop::collection::vec((any_segment(), 0u8..12), 1..80),
        with_timestamps in any::<bool>(),
    ) {
        let mut script = accepted_with(with_timestamps.then_some(Timestamps { value: 1, echo_reply: 0 }));
        for ((flags, seq, ack, len, timestamp, ms), call) in steps {
            let base = script.end.tcp.info(script.id(), script.end.now);
            let (rcv, snd) = base.map_or((script.seq, script.ack), |_| (script.seq, script.ack));
            script.timestamps = timestamp.map(|value| Timestamps { value: value as u32, echo_reply: ack as u32 });
            script.send(TcpFlags(flags), rcv + seq as u32, snd + ack as u32, &vec![1; len]);
            script.end.now += Duration::from_millis(ms);
            let (id, now) = (script.id(), script.end.now);
            let (tcp, sent) = (&mut script.end.tcp, &mut script.end.sent);
            match call {
                0 => _ = tcp.send(id, vec![2; 3000], now, sent),
                1 => _ = tcp.shutdown(id, now, sent),
                2 => _ = tcp.pause(id),
                3 => _ = tcp.resume(id),
                4 if ms % 16 == 0 => _ = tcp.abort(id, now, sent),
                5 if ms % 16 == 0 => _ = tcp.close(id, now, sent),
                6 => _ = tcp.path_mtu(Flow { local: SERVER, remote: CLIENT }, ms as u16, snd, now, sent),
                _ => (),
            }
            script.answers();
            prop_assert!(script.end.tcp.len() <= 8);
        }
        let (id, now) = (script.id(), script.end.now);
        _ = script.end.tcp.abort(id, now, &mut script.end.sent);
        for _ in 0..200 {
            script.pass(Duration::from_secs(2));
        }
        prop_assert_eq!((script.end.tcp.len(), script.end.tcp.chunks()), (0, 0));
    }
}
