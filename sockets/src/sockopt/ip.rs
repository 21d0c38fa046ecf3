//! The options of `IPPROTO_IP`, without those of groups.

use wirepath::pipeline::Cx;

use super::number::*;
use super::value::{int_or_byte, put, put_int};
use crate::errno::Errno;
use crate::options::{MtuDiscover, Options};
use crate::table::{SocketId, Sockets};

impl Sockets {
    /// Linux `do_ip_setsockopt`.
    pub(super) fn set_of_ip(
        &mut self,
        id: SocketId,
        name: i32,
        value: &[u8],
        is_stream: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let number = int_or_byte(value);
        let on = number != 0;
        match name {
            IP_PKTINFO => self.change(id, cx, |options| options.ancillary.packet_info = on),
            IP_RECVORIGDSTADDR => self.change(id, cx, |options| options.ancillary.original_destination = on),
            IP_MINTTL if value.is_empty() || !(0..=255).contains(&number) => Err(Errno::EINVAL),
            // The machine does not look at the TTL of segments.
            IP_MINTTL if is_stream && on => Err(Errno::ENOPROTOOPT),
            IP_MINTTL => self.change(id, cx, |options| options.ttl_min = number as u8),
            IP_RECVTTL => self.change(id, cx, |options| options.ancillary.ttl = on),
            IP_RECVTOS => self.change(id, cx, |options| options.ancillary.tos = on),
            IP_RECVERR => {
                let socket = self.find(id)?;
                socket.options.receive_errors = on;
                if let Some(error_queue) = socket.error_queue.as_mut().filter(|_| !on) {
                    error_queue.purge();
                }
                Ok(())
            }
            IP_TOS => self.change(id, cx, |options| {
                // The connection itself sets the ECN bits.
                options.tos = if is_stream { number as u8 & !3 } else { number as u8 };
            }),
            IP_TTL => match number {
                _ if value.is_empty() => Err(Errno::EINVAL),
                -1 => self.change(id, cx, |options| options.ttl = Options::default().ttl),
                1..=255 => self.change(id, cx, |options| options.ttl = number as u8),
                _ => Err(Errno::EINVAL),
            },
            IP_MTU_DISCOVER => {
                let mode = usize::try_from(number).ok().and_then(|mode| MtuDiscover::ALL.get(mode));
                match mode.copied().ok_or(Errno::EINVAL)? {
                    MtuDiscover::Want | MtuDiscover::Do => (),
                    // Segments are as long as the path allows, and have DF set.
                    _ if is_stream => return Err(Errno::ENOPROTOOPT),
                    _ => (),
                }
                self.change(id, cx, |options| options.mtu_discover = MtuDiscover::ALL[number as usize])
            }
            IP_BIND_ADDRESS_NO_PORT => {
                self.find(id)?.raw.binds_no_port = on;
                Ok(())
            }
            _ => self.set_of_groups(id, name, value, is_stream, cx),
        }
    }

    pub(super) fn get_of_ip(&mut self, id: SocketId, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        let (options, raw) = (&socket.options, &socket.raw);
        let number = match name {
            IP_PKTINFO => options.ancillary.packet_info.into(),
            IP_RECVORIGDSTADDR => options.ancillary.original_destination.into(),
            IP_MINTTL => options.ttl_min.into(),
            IP_RECVTTL => options.ancillary.ttl.into(),
            IP_RECVTOS => options.ancillary.tos.into(),
            IP_RECVERR => options.receive_errors.into(),
            IP_TOS => options.tos.into(),
            IP_TTL => options.ttl.into(),
            IP_MTU_DISCOVER => options.mtu_discover as i32,
            IP_BIND_ADDRESS_NO_PORT => raw.binds_no_port.into(),
            IP_MULTICAST_LOOP => options.multicast_loop.into(),
            IP_MULTICAST_ALL => options.multicast_all.into(),
            IP_MULTICAST_TTL => options.multicast_ttl.into(),
            IP_MULTICAST_IF => return Ok(put(out, &options.multicast_source.octets())),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        match u8::try_from(number) {
            Ok(byte) if (1..4).contains(&out.len()) => Ok(put(out, &[byte])),
            _ => Ok(put_int(out, number)),
        }
    }
}
