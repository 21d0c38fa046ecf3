//! A device that is chosen by its name, and one program over either.

use core::net::{Ipv4Addr, Ipv6Addr};

use rdma::port::{AnyProvider, RocePort, RocePortOptions};
use rdma::roce::*;
use rdma::wire::opcode::Transport;
use softhca::testing::is_inside;
use wirepath::port::Port;

use super::{Own, path, until};

/// A WRITE from the first end to the second, by these ways.
fn run(mut ends: [AnyProvider; 2], ways: [Path; 2]) {
    let own = ends.each_mut().map(|end| Own::new(end.provider_mut()));
    for end in [0, 1] {
        let peer = ends[1 - end].provider().qpn(own[1 - end].qp).unwrap();
        let access = Some(Access::REMOTE_WRITE);
        let all = QpAttributes { access, ..QpAttributes::connection(ways[end], peer) };
        ends[end].provider_mut().connect_qp(own[end].qp, Transport::Rc, &all).unwrap();
    }
    let [a, b] = &own;
    let write = SendRequest::new(5, SendOperation::Write(b.remote(64)), Data::Inline(b"by its name"));
    ends[0].provider_mut().post_send(a.qp, &write).unwrap();
    let done = until(&mut ends, &mut turn, |ends| ends[0].provider_mut().poll_cq(a.cq).unwrap());
    assert_eq!((done.wr_id, done.status), (5, Status::Success));
    assert_eq!(b.bytes(64, 11), b"by its name");
}

fn turn(ends: &mut [AnyProvider; 2]) {
    ends.iter_mut().for_each(|end| {
        end.turn();
    });
    std::thread::yield_now();
}

#[test]
fn program_runs_over_the_nics_that_are_named() {
    if !is_inside("by_name::program_runs_over_the_nics_that_are_named", &["--strict", "--devices", "2"]) {
        return;
    }
    let options = RocePortOptions::new("by-name");
    let ends = ["mlx5_0", "mlx5_1"].map(|name| AnyProvider::open(name, &options).unwrap());
    let gids = ends.each_ref().map(|end| {
        let AnyProvider::Nic(nic, _) = end else { panic!("mlx5_0 is a NIC") };
        nic.gids().find(Ipv6Addr::is_unicast_link_local).unwrap()
    });
    let way = |from: usize| path(Addresses::Ipv6 { source: gids[from], destination: gids[1 - from] });
    run(ends, [way(0), way(1)]);
}

#[test]
fn program_runs_over_ports() {
    let addresses = [1, 2].map(|host| Ipv4Addr::new(192, 0, 2, host));
    let mut ends = addresses.map(|address| {
        let port = Port::open("memory:by-name").unwrap().address(address, 24).log(|_| ());
        let port = RocePort::over(port, "memory:by-name", &RocePortOptions::new("by-name")).unwrap();
        AnyProvider::Port(Box::new(port))
    });
    let ways = until(&mut ends, &mut turn, |ends| {
        Some([ends[0].path(addresses[1]).unwrap()?, ends[1].path(addresses[0]).unwrap()?])
    });
    run(ends, ways);
}

#[test]
fn name_that_no_nic_has_is_that_of_a_port() {
    let options = RocePortOptions::new("by-name");
    assert!(matches!(AnyProvider::open("memory:alone", &options), Ok(AnyProvider::Port(_))));
    for name in ["", "..", "no-such-port0"] {
        assert!(AnyProvider::open(name, &options).is_err(), "{name}");
    }
}
