//! What the caller asks for in structures and flags, for the framework.

use core::net::{Ipv4Addr, SocketAddrV4};

use wirepath::pipeline::tcp::{ConnectionOptions, Keepalive};
use wirepath::pipeline::{Checksum, UdpOptions};
use wirepath::time::Duration;

use crate::abi;
use crate::error::{Code, Fault, Result};

/// The caller's options of a connection; `base` has the defaults.
pub(crate) fn tcp_options(options: &abi::TcpOptions, base: ConnectionOptions) -> Result<ConnectionOptions> {
    const KNOWN: u32 = abi::WP_TCP_NAGLE | abi::WP_TCP_QUICKACK | abi::WP_TCP_KEEPALIVE;
    check_flags(options.flags, KNOWN)?;
    let time = |ns: u64, usual: Duration| if ns == 0 { usual } else { Duration::from_nanos(ns) };
    let bytes = |bytes: u32, usual: u32| if bytes == 0 { usual } else { bytes };
    let keeps_alive = options.flags & abi::WP_TCP_KEEPALIVE != 0;
    Ok(ConnectionOptions {
        nodelay: options.flags & abi::WP_TCP_NAGLE == 0,
        quickack: options.flags & abi::WP_TCP_QUICKACK != 0,
        keepalive: if keeps_alive { Some(Keepalive::SESSION) } else { base.keepalive },
        ack_delay: time(options.ack_delay_ns, base.ack_delay),
        user_timeout: (options.user_timeout_ns > 0).then(|| Duration::from_nanos(options.user_timeout_ns)),
        rto_min: time(options.rto_min_ns, base.rto_min),
        pacing_rate: (options.pacing_rate > 0).then_some(options.pacing_rate),
        send_buffer: bytes(options.send_buffer, base.send_buffer),
        receive_buffer: bytes(options.receive_buffer, base.receive_buffer),
        ..base
    })
}

/// The caller's options of a flow.
pub(crate) fn udp_options(options: &abi::UdpOptions) -> Result<UdpOptions> {
    check_flags(options.flags, abi::WP_UDP_DONT_FRAGMENT | abi::WP_UDP_NO_CHECKSUM)?;
    if options.reserved != [0; 6] {
        return Err(Fault::because(
            Code::Argument,
            "wp_udp_options.reserved must be zero: begin with WP_UDP_OPTIONS_INIT",
        ));
    }
    let is_without_sum = options.flags & abi::WP_UDP_NO_CHECKSUM != 0;
    Ok(UdpOptions {
        ttl: (options.ttl > 0).then_some(options.ttl),
        tos: options.tos,
        dont_fragment: options.flags & abi::WP_UDP_DONT_FRAGMENT != 0,
        checksum: if is_without_sum { Checksum::Zero } else { Checksum::Compute },
        ..UdpOptions::default()
    })
}

/// Refuses a flag that this version does not have, because the caller may rely on its effect.
#[inline]
pub(crate) fn check_flags(flags: u32, known: u32) -> Result<()> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Fault::because(Code::Argument, format!("flags {unknown:#x} are of no meaning to this call"))),
    }
}

/// The unspecified address and port.
pub(crate) const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
