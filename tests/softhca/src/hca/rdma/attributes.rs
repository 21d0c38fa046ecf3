//! Which attributes a change of state must name, and which it may name: the table of
//! `ibv_modify_qp(3)`, and of the kernel's `ib_modify_qp_is_ok`. Transitions to SQD are not there,
//! because mlx5 has no command for them.

use crate::hca::control::{QpState, Service};

/// IBV_QP_*.
pub(in crate::hca) mod mask {
    pub(crate) const STATE: u32 = 1 << 0;
    pub(crate) const CURRENT_STATE: u32 = 1 << 1;
    pub(crate) const ACCESS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const QKEY: u32 = 1 << 6;
    pub(crate) const ADDRESS: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY_COUNT: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RECEIVE_PSN: u32 = 1 << 12;
    pub(crate) const READ_MAX: u32 = 1 << 13;
    pub(crate) const ALTERNATE_PATH: u32 = 1 << 14;
    pub(crate) const RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SEND_PSN: u32 = 1 << 16;
    pub(crate) const PEER_READ_MAX: u32 = 1 << 17;
    pub(crate) const PATH_MIGRATION: u32 = 1 << 18;
    pub(crate) const DESTINATION_QP: u32 = 1 << 20;
    pub(crate) const RATE_LIMIT: u32 = 1 << 25;
}

/// Attributes of a transition.
struct Step {
    wanted: u32,
    optional: u32,
}

/// Whether a QP of this service may go from one state to the other with these attributes.
pub(super) fn is_legal(service: Service, from: QpState, to: QpState, named: u32) -> bool {
    let named = named & !mask::STATE;
    step(service, from, to)
        .is_some_and(|step| named & step.wanted == step.wanted && named & !(step.wanted | step.optional) == 0)
}

fn step(service: Service, from: QpState, to: QpState) -> Option<Step> {
    use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueError};
    use mask::*;
    let is_ud = service == Service::Ud;
    // What RC alone has, UC too, UD alone.
    let rc = |bits: u32| if service == Service::Rc { bits } else { 0 };
    let connected = |bits: u32| if is_ud { 0 } else { bits };
    let ud = |bits: u32| if is_ud { bits } else { 0 };
    let step = match (from, to) {
        (_, Reset) => Step { wanted: 0, optional: CURRENT_STATE },
        (Reset, Error) => return None,
        (_, Error) => Step { wanted: 0, optional: CURRENT_STATE },
        (Reset, Init) => Step { wanted: PKEY_INDEX | PORT | connected(ACCESS) | ud(QKEY), optional: 0 },
        (Init, Init) => Step { wanted: 0, optional: PKEY_INDEX | PORT | connected(ACCESS) | ud(QKEY) },
        (Init, ReadyToReceive) => Step {
            wanted: connected(ADDRESS | PATH_MTU | DESTINATION_QP | RECEIVE_PSN) | rc(PEER_READ_MAX | RNR_TIMER),
            optional: PKEY_INDEX | connected(ALTERNATE_PATH | ACCESS) | ud(QKEY),
        },
        (ReadyToReceive, ReadyToSend) => Step {
            wanted: SEND_PSN | rc(TIMEOUT | RETRY_COUNT | RNR_RETRY | READ_MAX),
            optional: CURRENT_STATE
                | RATE_LIMIT
                | connected(ALTERNATE_PATH | ACCESS | PATH_MIGRATION)
                | rc(RNR_TIMER)
                | ud(QKEY),
        },
        (ReadyToSend, ReadyToSend) => Step {
            wanted: 0,
            optional: CURRENT_STATE
                | RATE_LIMIT
                | connected(ALTERNATE_PATH | ACCESS | PATH_MIGRATION)
                | rc(RNR_TIMER)
                | ud(QKEY),
        },
        (SendQueueError, ReadyToSend) if service != Service::Rc => {
            Step { wanted: 0, optional: CURRENT_STATE | connected(ACCESS) | ud(QKEY) }
        }
        _ => return None,
    };
    Some(step)
}

#[cfg(test)]
mod tests {
    use super::mask::*;
    use super::*;

    const RC_TO_RTR: u32 = ADDRESS | PATH_MTU | DESTINATION_QP | RECEIVE_PSN | PEER_READ_MAX | RNR_TIMER;

    #[test]
    fn each_attribute_that_a_transition_wants_must_be_there() {
        for bit in (0..32).map(|bit| 1 << bit).filter(|bit| RC_TO_RTR & bit != 0) {
            let named = STATE | RC_TO_RTR & !bit;
            assert!(!is_legal(Service::Rc, QpState::Init, QpState::ReadyToReceive, named), "without {bit:#x}");
        }
        assert!(is_legal(Service::Rc, QpState::Init, QpState::ReadyToReceive, STATE | RC_TO_RTR));
    }

    #[test]
    fn attribute_of_another_service_is_refused() {
        let to_init = STATE | PKEY_INDEX | PORT;
        assert!(is_legal(Service::Ud, QpState::Reset, QpState::Init, to_init | QKEY));
        assert!(!is_legal(Service::Ud, QpState::Reset, QpState::Init, to_init | QKEY | ACCESS));
        assert!(!is_legal(Service::Uc, QpState::Init, QpState::ReadyToReceive, STATE | RC_TO_RTR));
        assert!(is_legal(Service::Ud, QpState::Init, QpState::ReadyToReceive, STATE));
    }

    #[test]
    fn no_state_is_left_out_on_the_way() {
        assert!(!is_legal(Service::Rc, QpState::Init, QpState::ReadyToSend, u32::MAX));
        assert!(!is_legal(Service::Rc, QpState::Reset, QpState::ReadyToReceive, u32::MAX));
        assert!(!is_legal(Service::Rc, QpState::Reset, QpState::Error, STATE));
        assert!(is_legal(Service::Rc, QpState::ReadyToSend, QpState::Error, STATE));
        assert!(is_legal(Service::Rc, QpState::Error, QpState::Reset, STATE));
    }

    #[test]
    fn only_unreliable_queues_come_back_from_a_send_error() {
        assert!(is_legal(Service::Ud, QpState::SendQueueError, QpState::ReadyToSend, STATE));
        assert!(!is_legal(Service::Rc, QpState::SendQueueError, QpState::ReadyToSend, STATE));
    }
}
