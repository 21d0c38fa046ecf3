//! The options of `IPPROTO_TCP`.

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{Congestion, ConnectionOptions, Keepalive};
use wirepath::time::Duration;

use super::number::*;
use super::socket::RECEIVE_BUFFER_MIN;
use super::tcp_info::tcp_info;
use super::value::{int, put, put_int, seconds};
use crate::errno::Errno;
use crate::options::Options;
use crate::socket::State;
use crate::table::{SocketId, Sockets};

/// `TCP_MIN_MSS` to `MAX_TCP_WINDOW`.
const MSS: core::ops::RangeInclusive<i32> = 88..=32_767;
/// The MSS before the handshake (`TCP_MSS_DEFAULT`).
const MSS_UNKNOWN: u16 = 536;
/// Seconds of `TCP_KEEPIDLE` and `TCP_KEEPINTVL`, and probes.
const KEEPALIVE_SECONDS: core::ops::RangeInclusive<i32> = 1..=32_767;
const KEEPALIVE_COUNT: core::ops::RangeInclusive<i32> = 1..=127;
/// `TCP_CA_NAME_MAX`
const CONGESTION_NAME_LEN: usize = 16;

impl Sockets {
    /// Linux `do_tcp_setsockopt`.
    pub(super) fn set_of_tcp(&mut self, id: SocketId, name: i32, value: &[u8], cx: &mut Cx<'_>) -> Result<(), Errno> {
        if name == TCP_CONGESTION {
            let congestion = congestion_of(value)?;
            return self.change(id, cx, |options| options.congestion = congestion);
        }
        let number = int(value)?;
        let on = number != 0;
        match name {
            TCP_NODELAY => {
                self.change(id, cx, |options| options.nodelay = on)?;
                // Bytes that wait by now leave, also under a cork (Linux `__tcp_sock_set_nodelay`).
                if on { self.push_pending(id, cx) } else { Ok(()) }
            }
            TCP_CORK => {
                self.change(id, cx, |options| options.cork = on)?;
                if on { Ok(()) } else { self.push_pending(id, cx) }
            }
            TCP_QUICKACK => {
                self.find(id)?.raw.is_quickack_off = !on;
                self.change(id, cx, |options| options.quickack = on)
            }
            TCP_SYNCNT if (1..=127).contains(&number) => {
                self.change(id, cx, |options| options.syn_retries = number as u8)
            }
            TCP_SYNCNT => Err(Errno::EINVAL),
            TCP_LINGER2 => self.change(id, cx, |options| options.fin_wait = fin_wait_of(number)),
            TCP_DEFER_ACCEPT => {
                self.find(id)?.raw.defer_accept = retransmissions_in(number);
                Ok(())
            }
            TCP_WINDOW_CLAMP => self.set_window_clamp(id, number, cx),
            TCP_NOTSENT_LOWAT => {
                self.look_at_throttled();
                self.change(id, cx, |options| options.unsent_low_water = (number != 0).then_some(number as u32))
            }
            TCP_MAXSEG if number == 0 => self.change(id, cx, |options| options.mss_max = None),
            TCP_MAXSEG if MSS.contains(&number) => self.change(id, cx, |options| options.mss_max = Some(number as u16)),
            TCP_KEEPIDLE if KEEPALIVE_SECONDS.contains(&number) => {
                self.change_keepalive(id, cx, |times| times.idle = Duration::from_secs(number as u64))
            }
            TCP_KEEPINTVL if KEEPALIVE_SECONDS.contains(&number) => {
                self.change_keepalive(id, cx, |times| times.interval = Duration::from_secs(number as u64))
            }
            TCP_KEEPCNT if KEEPALIVE_COUNT.contains(&number) => {
                self.change_keepalive(id, cx, |times| times.count = number as u8)
            }
            TCP_USER_TIMEOUT if number >= 0 => {
                let timeout = (number > 0).then(|| Duration::from_millis(number as u64));
                self.change(id, cx, |options| options.user_timeout = timeout)
            }
            TCP_MAXSEG | TCP_KEEPIDLE | TCP_KEEPINTVL | TCP_KEEPCNT | TCP_USER_TIMEOUT => Err(Errno::EINVAL),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// A connected socket keeps its clamp: 0 takes it back only before.
    fn set_window_clamp(&mut self, id: SocketId, number: i32, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let clamp = match (number, &self.find(id)?.state) {
            (0, State::Stream(stream)) if stream.connection.is_none() => None,
            (0, _) => return Err(Errno::EINVAL),
            _ => Some(number.max(RECEIVE_BUFFER_MIN as i32 / 2) as u32),
        };
        self.change(id, cx, |options| options.window_clamp = clamp)
    }

    fn change_keepalive(
        &mut self,
        id: SocketId,
        cx: &mut Cx<'_>,
        act: impl FnOnce(&mut Keepalive),
    ) -> Result<(), Errno> {
        self.change(id, cx, |options| act(&mut options.keepalive_times))
    }

    pub(super) fn get_of_tcp(
        &mut self,
        id: SocketId,
        name: i32,
        out: &mut [u8],
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        let (options, raw) = (socket.options, socket.raw);
        let info = match &socket.state {
            State::Stream(stream) => {
                let lives = stream.connection.and_then(|connection| cx.tcp().info(connection));
                lives.or(stream.last_info.as_deref().copied())
            }
            State::Listener(_) | State::Datagram(_) => None,
        };
        let number = match name {
            TCP_NODELAY => options.nodelay.into(),
            TCP_CORK => options.cork.into(),
            TCP_QUICKACK => (!raw.is_quickack_off).into(),
            TCP_MAXSEG => info.map_or(options.mss_max.unwrap_or(MSS_UNKNOWN), |info| info.snd_mss).into(),
            TCP_KEEPIDLE => seconds(options.keepalive_times.idle),
            TCP_KEEPINTVL => seconds(options.keepalive_times.interval),
            TCP_KEEPCNT => options.keepalive_times.count.into(),
            TCP_USER_TIMEOUT => options.user_timeout.map_or(0, |timeout| (timeout.as_nanos() / 1_000_000) as i32),
            TCP_SYNCNT => options.syn_retries.into(),
            TCP_LINGER2 if options.fin_wait == Duration::ZERO => -1,
            TCP_LINGER2 => seconds(options.fin_wait),
            TCP_DEFER_ACCEPT => seconds_of(raw.defer_accept) as i32,
            TCP_WINDOW_CLAMP => options.window_clamp.unwrap_or(0) as i32,
            TCP_NOTSENT_LOWAT => options.unsent_low_water.unwrap_or(0) as i32,
            TCP_CONGESTION => {
                let mut name = [0; CONGESTION_NAME_LEN];
                put(&mut name, name_of(options.congestion));
                return Ok(put(out, &name));
            }
            TCP_INFO => return Ok(put(out, &tcp_info(socket, info.as_ref(), &options))),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(put_int(out, number))
    }
}

/// `TCP_LINGER2`: 0 means the default, a negative number none.
fn fin_wait_of(seconds: i32) -> Duration {
    match seconds {
        0 => Options::default().fin_wait,
        _ if seconds < 0 => Duration::ZERO,
        _ => Duration::from_secs(seconds as u64).min(ConnectionOptions::FIN_WAIT_MAX),
    }
}

/// The SYN-ACKs that are sent again within `seconds`, the first after one, each after twice the
/// time, 120 s at most (Linux `secs_to_retrans`).
fn retransmissions_in(seconds: i32) -> u8 {
    match u32::try_from(seconds) {
        Ok(0) | Err(_) => 0,
        Ok(seconds) => (1..u8::MAX).find(|count| seconds_of(*count) >= seconds).unwrap_or(u8::MAX),
    }
}

/// Seconds until this number of retransmissions is sent (Linux `retrans_to_secs`).
pub(super) fn seconds_of(retransmissions: u8) -> u32 {
    (0..retransmissions).map(|count| 1_u32.checked_shl(count.into()).map_or(120, |wait| wait.min(120))).sum()
}

/// A name of a congestion control, up to its NUL.
fn congestion_of(value: &[u8]) -> Result<Congestion, Errno> {
    if value.is_empty() {
        return Err(Errno::EINVAL);
    }
    let value = &value[..value.len().min(CONGESTION_NAME_LEN - 1)];
    match value.split(|byte| *byte == 0).next() {
        Some(b"cubic") => Ok(Congestion::Cubic),
        Some(b"reno") => Ok(Congestion::Reno),
        _ => Err(Errno::ENOENT),
    }
}

fn name_of(congestion: Congestion) -> &'static [u8] {
    match congestion {
        Congestion::Reno => b"reno",
        Congestion::Cubic => b"cubic",
        _ => b"none",
    }
}
