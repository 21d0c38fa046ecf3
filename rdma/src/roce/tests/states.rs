//! States and attributes: what a step needs, and what it does not take.

use super::pair::{End, attributes};
use crate::roce::*;
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;

/// A change of a step, the number of the step, and the attribute that is named then.
type Change = (usize, &'static str, fn(&mut QpAttributes));

/// An end with a new queue pair, and the steps to RTS.
fn new_end() -> (End, [QpAttributes; 3]) {
    let config = DeviceConfig::default();
    let (end, peer) = (End::new(&config), End::new(&config));
    let steps = attributes(1, 2, &peer).steps(Transport::Rc);
    (end, steps)
}

#[test]
fn each_attribute_that_a_step_needs_is_missed_by_its_name() {
    let without: [Change; 14] = [
        (0, "PKEY_INDEX", |set| set.pkey_index = None),
        (0, "PORT", |set| set.port = None),
        (0, "ACCESS_FLAGS", |set| set.access = None),
        (1, "AV", |set| set.path = None),
        (1, "PATH_MTU", |set| set.mtu = None),
        (1, "DEST_QPN", |set| set.destination = None),
        (1, "RQ_PSN", |set| set.rq_psn = None),
        (1, "MAX_DEST_RD_ATOMIC", |set| set.max_dest_rd_atomic = None),
        (1, "MIN_RNR_TIMER", |set| set.min_rnr_timer = None),
        (2, "SQ_PSN", |set| set.sq_psn = None),
        (2, "MAX_QP_RD_ATOMIC", |set| set.max_rd_atomic = None),
        (2, "RETRY_CNT", |set| set.retry_cnt = None),
        (2, "RNR_RETRY", |set| set.rnr_retry = None),
        (2, "TIMEOUT", |set| set.timeout = None),
    ];
    for (at, name, remove) in without {
        let (mut end, steps) = new_end();
        for step in &steps[..at] {
            end.device.modify_qp(end.qp, step).unwrap();
        }
        let before = end.state();
        let mut step = steps[at];
        remove(&mut step);
        assert_eq!(end.device.modify_qp(end.qp, &step), Err(ModifyError::Missing(name)));
        assert_eq!(end.state(), before);
        assert_eq!(end.device.modify_qp(end.qp, &steps[at]), Ok(()), "nothing had changed");
    }
}

#[test]
fn attribute_of_another_step_is_too_much() {
    let extra: [Change; 4] = [
        (0, "QKEY", |set| set.qkey = Some(1)),
        (0, "SQ_PSN", |set| set.sq_psn = Some(Psn::new(1))),
        (1, "TIMEOUT", |set| set.timeout = Some(14)),
        (2, "RQ_PSN", |set| set.rq_psn = Some(Psn::new(1))),
    ];
    for (at, name, add) in extra {
        let (mut end, steps) = new_end();
        for step in &steps[..at] {
            end.device.modify_qp(end.qp, step).unwrap();
        }
        let mut step = steps[at];
        add(&mut step);
        assert_eq!(end.device.modify_qp(end.qp, &step), Err(ModifyError::Extra(name)));
    }
}

#[test]
fn value_that_the_device_does_not_have_is_refused() {
    let (mut end, mut steps) = new_end();
    steps[0].port = Some(2);
    assert_eq!(end.device.modify_qp(end.qp, &steps[0]), Err(ModifyError::Value("PORT")));
    steps[0].port = Some(1);
    end.device.modify_qp(end.qp, &steps[0]).unwrap();
    steps[1].mtu = Some(Mtu::B2048);
    assert_eq!(end.device.modify_qp(end.qp, &steps[1]), Err(ModifyError::Value("PATH_MTU")));
}

#[test]
fn state_takes_only_the_steps_and_the_requests_that_it_may() {
    let (mut end, steps) = new_end();
    let sge = end.sge(0, 8);
    let data = [sge];
    let send = SendRequest::new(1, SendOperation::Send, Data::Sges(&data));
    let step = end.device.modify_qp(end.qp, &steps[1]);
    assert_eq!(step, Err(ModifyError::Transition(QpState::Reset, QpState::Rtr)));
    assert_eq!(end.device.post_recv(end.qp, 1, &[sge]), Err(PostError::State));
    for step in steps {
        assert_eq!(end.device.post_send(end.qp, &send), Err(PostError::State));
        end.device.modify_qp(end.qp, &step).unwrap();
        assert_eq!(end.device.post_recv(end.qp, 1, &[sge]), Ok(()));
    }
    assert_eq!(end.device.post_send(end.qp, &send), Ok(()));
    end.device.modify_qp(end.qp, &QpAttributes::to(QpState::Reset)).unwrap();
    assert_eq!((end.state(), end.frame(0), end.completions()), (QpState::Reset, None, vec![]));
}

#[test]
fn object_of_another_device_is_unknown() {
    let (mut end, _) = new_end();
    let (mut other, steps) = new_end();
    assert_eq!(end.device.destroy_pd(other.pd), Err(DeviceError::Unknown("protection domain")));
    assert_eq!(end.device.destroy_qp(other.qp), Err(DeviceError::Unknown("queue pair")));
    assert_eq!(end.device.deregister(other.mr.handle).err(), Some(DeviceError::Unknown("memory region")));
    assert_eq!(end.device.create_qp(&other.options), Err(DeviceError::Unknown("protection domain")));
    assert_eq!(end.device.modify_qp(other.qp, &steps[0]), Err(ModifyError::UnknownQp));
    assert_eq!(other.device.modify_qp(other.qp, &steps[0]), Ok(()));
}

#[test]
fn object_in_use_is_not_destroyed() {
    let (mut end, _) = new_end();
    assert_eq!(end.device.destroy_cq(end.cq), Err(DeviceError::InUse("completion queue")));
    end.device.destroy_qp(end.qp).unwrap();
    assert_eq!(end.device.destroy_qp(end.qp), Err(DeviceError::Unknown("queue pair")));
    assert_eq!(end.device.destroy_cq(end.cq), Ok(()));
}
