//! The options of `SOL_SOCKET`.

use wirepath::pipeline::Cx;
use wirepath::time::Duration;

use super::System;
use super::number::*;
use super::value::{AF_INET, int, put, put_int, put_timeval, timeout, words};
use crate::errno::Errno;
use crate::options::{Ancillary, TimestampResolution};
use crate::socket::State;
use crate::table::{SocketId, Sockets};
use crate::timestamping::Timestamping;

/// `SOCK_MIN_SNDBUF`: room for two packets.
const SEND_BUFFER_MIN: u32 = 4_608;
/// `SOCK_MIN_RCVBUF`: room for one.
pub(super) const RECEIVE_BUFFER_MIN: u32 = 2_304;
/// The most that the machine accepts.
const BUFFER_MAX: u32 = 1 << 30;

impl Sockets {
    /// Linux `sk_setsockopt`.
    pub(super) fn set_of_socket(
        &mut self,
        id: SocketId,
        name: i32,
        value: &[u8],
        is_stream: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let number = int(value)?;
        let on = number != 0;
        match name {
            SO_REUSEADDR => self.change(id, cx, |options| options.reuse_address = on),
            SO_REUSEPORT => self.change(id, cx, |options| options.reuse_port = on),
            SO_BROADCAST => self.change(id, cx, |options| options.broadcast = on),
            SO_KEEPALIVE => self.change(id, cx, |options| options.keepalive = on),
            SO_RXQ_OVFL => self.change(id, cx, |options| options.ancillary.dropped = on),
            SO_SNDBUF | SO_SNDBUFFORCE | SO_RCVBUF | SO_RCVBUFFORCE => self.set_buffer(id, name, number, cx),
            SO_RCVLOWAT => self.set_low_water(id, number, is_stream, cx),
            SO_LINGER => {
                let [onoff, seconds] = words(value).ok_or(Errno::EINVAL)?;
                if onoff != 0 {
                    self.find(id)?.raw.linger_seconds = seconds;
                }
                let span = Duration::from_secs(seconds.into());
                self.change(id, cx, |options| options.linger = (onoff != 0).then_some(span))
            }
            SO_RCVTIMEO | SO_RCVTIMEO_NEW => {
                let timeout = timeout(value)?;
                self.change(id, cx, |options| options.receive_timeout = timeout)
            }
            SO_SNDTIMEO | SO_SNDTIMEO_NEW => {
                let timeout = timeout(value)?;
                self.change(id, cx, |options| options.send_timeout = timeout)
            }
            SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW => {
                set_receive_times(&mut self.find(id)?.options.ancillary, name, on);
                Ok(())
            }
            // With 8 bytes it is a `struct so_timestamping`, whose second word is for `BIND_PHC`.
            SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
                self.set_timestamping(id, Timestamping(number as u32), name == SO_TIMESTAMPING_NEW, cx)
            }
            SO_ZEROCOPY if !(0..=1).contains(&number) => Err(Errno::EINVAL),
            SO_ZEROCOPY => {
                self.find(id)?.options.zerocopy = on;
                Ok(())
            }
            SO_SELECT_ERR_QUEUE => {
                self.find(id)?.options.select_error_queue = on;
                Ok(())
            }
            SO_MAX_PACING_RATE if is_stream => {
                let rate = pacing_rate(value, number);
                self.change(id, cx, |options| options.pacing_rate = (rate != u64::MAX).then_some(rate))
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// The kernel's limits hold unless the option has `FORCE` in its name.
    fn set_buffer(&mut self, id: SocketId, name: i32, number: i32, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let System { receive_buffer_max, send_buffer_max, .. } = self.system;
        let asked = match name {
            SO_SNDBUF => (number as u32).min(send_buffer_max),
            SO_RCVBUF => (number as u32).min(receive_buffer_max),
            _ => number.max(0) as u32,
        };
        if matches!(name, SO_SNDBUF | SO_SNDBUFFORCE) {
            return self.change(id, cx, |options| options.send_buffer = doubled(asked, SEND_BUFFER_MIN));
        }
        self.change(id, cx, |options| options.receive_buffer = doubled(asked, RECEIVE_BUFFER_MIN))?;
        self.find(id)?.raw.is_receive_buffer_set = true;
        Ok(())
    }

    /// As Linux `tcp_set_rcvlowat`, and as other sockets do.
    fn set_low_water(&mut self, id: SocketId, number: i32, is_stream: bool, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        let asked = if number < 0 { i32::MAX } else { number } as u32;
        let (is_set, buffer) = (socket.raw.is_receive_buffer_set, socket.options.receive_buffer);
        let low_water = match is_stream {
            true if is_set => asked.min(buffer / 2),
            true => asked.min(BUFFER_MAX / 2),
            false => asked,
        };
        self.change(id, cx, |options| {
            options.receive_low_water = low_water.max(1);
            if is_stream && !is_set {
                options.receive_buffer = buffer.max(low_water.saturating_mul(2));
            }
        })?;
        self.wake(id);
        Ok(())
    }

    pub(super) fn get_of_socket(
        &mut self,
        id: SocketId,
        name: i32,
        out: &mut [u8],
        is_stream: bool,
    ) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        let options = &socket.options;
        let flag = |on: bool| i32::from(on);
        let number = match name {
            SO_REUSEADDR => flag(options.reuse_address),
            SO_REUSEPORT => flag(options.reuse_port),
            SO_BROADCAST => flag(options.broadcast),
            SO_KEEPALIVE => flag(options.keepalive),
            SO_RXQ_OVFL => flag(options.ancillary.dropped),
            SO_SNDBUF => options.send_buffer as i32,
            SO_RCVBUF => options.receive_buffer as i32,
            SO_RCVLOWAT => options.receive_low_water as i32,
            SO_SNDLOWAT => 1,
            SO_TYPE => 2 - flag(is_stream),
            SO_DOMAIN => AF_INET.into(),
            SO_PROTOCOL if is_stream => IPPROTO_TCP,
            SO_PROTOCOL => IPPROTO_UDP,
            SO_ACCEPTCONN => flag(matches!(socket.state, State::Listener(_))),
            SO_ERROR => socket.error.take().map_or(0, |error| error.0),
            SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW => {
                flag(has_receive_times(&options.ancillary, name))
            }
            SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
                let is_set = name == SO_TIMESTAMPING || options.ancillary.has_new_times;
                let flags = if is_set { options.timestamping.0 } else { 0 };
                return Ok(put(out, [flags, 0].map(u32::to_ne_bytes).as_flattened()));
            }
            SO_ZEROCOPY => flag(options.zerocopy),
            SO_SELECT_ERR_QUEUE => flag(options.select_error_queue),
            SO_LINGER => {
                let seconds = match options.linger {
                    Some(linger) => (linger.as_nanos() / 1_000_000_000) as u32,
                    None => socket.raw.linger_seconds,
                };
                let both = [u32::from(options.linger.is_some()), seconds];
                return Ok(put(out, both.map(u32::to_ne_bytes).as_flattened()));
            }
            SO_RCVTIMEO | SO_RCVTIMEO_NEW => return Ok(put_timeval(out, options.receive_timeout)),
            SO_SNDTIMEO | SO_SNDTIMEO_NEW => return Ok(put_timeval(out, options.send_timeout)),
            SO_MAX_PACING_RATE if is_stream => {
                let rate = options.pacing_rate.unwrap_or(u64::MAX);
                if out.len() >= 8 {
                    return Ok(put(out, &rate.to_ne_bytes()));
                }
                rate.min(u32::MAX.into()) as i32
            }
            SO_COOKIE if out.len() < 8 => return Err(Errno::EINVAL),
            SO_COOKIE => return Ok(put(out, &id.cookie().to_ne_bytes())),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(put_int(out, number))
    }
}

/// `SO_TIMESTAMP` and its kin: one unit at a time, in the old or the new layout.
fn set_receive_times(ancillary: &mut Ancillary, name: i32, on: bool) {
    let nanos = matches!(name, SO_TIMESTAMPNS | SO_TIMESTAMPNS_NEW);
    let unit = if nanos { TimestampResolution::Nanoseconds } else { TimestampResolution::Microseconds };
    ancillary.timestamp = on.then_some(unit);
    if on {
        ancillary.has_new_times = matches!(name, SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW);
    }
}

/// Whether one of these options reads as set.
fn has_receive_times(ancillary: &Ancillary, name: i32) -> bool {
    let Ancillary { timestamp, has_new_times, .. } = *ancillary;
    let is_unit = match name {
        SO_TIMESTAMP => timestamp == Some(TimestampResolution::Microseconds),
        // Also reads as set after `SO_TIMESTAMPNS_NEW`, as on Linux.
        SO_TIMESTAMP_NEW => timestamp.is_some(),
        _ => timestamp == Some(TimestampResolution::Nanoseconds),
    };
    let is_new = matches!(name, SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW);
    is_unit && is_new == has_new_times
}

/// `SO_MAX_PACING_RATE`, a word or a long one; all bits set mean no limit.
fn pacing_rate(value: &[u8], number: i32) -> u64 {
    match <[u8; 8]>::try_from(value.get(..8).unwrap_or_default()) {
        Ok(long) => u64::from_ne_bytes(long),
        Err(_) if number == -1 => u64::MAX,
        Err(_) => u64::from(number as u32),
    }
}

fn doubled(asked: u32, min: u32) -> u32 {
    asked.saturating_mul(2).clamp(min, BUFFER_MAX)
}
