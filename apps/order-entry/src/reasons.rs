//! The reasons of a venue's answers by name. An event has the venue's own code of its reason; whose
//! code that is, the session knows.

use crate::boe::{ReasonCode, RestatementReason};
use crate::orders::VenueEvent;
use crate::ouch::{CancelReason, RejectReason, RejectReason42};
use crate::{fix, ilink3};

/// Whose codes the reasons of events are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReasonCodes {
    /// OUCH 5.0.
    Ouch50,
    /// OUCH 4.2.
    Ouch42,
    /// FIX, any version.
    Fix,
    /// Cboe BOE, either version.
    Boe,
    /// CME iLink 3.
    Ilink3,
}

impl ReasonCodes {
    /// All of them, by the names of configurations.
    pub const ALL: [(&'static str, Self); 5] = [
        ("ouch50", Self::Ouch50),
        ("ouch42", Self::Ouch42),
        ("fix", Self::Fix),
        ("boe", Self::Boe),
        ("ilink3", Self::Ilink3),
    ];

    /// What the reason of an event means; `None` where the event has none, or the venue a code of
    /// its own. A look into a table.
    pub fn name(self, event: &VenueEvent) -> Option<&'static str> {
        match self {
            Self::Ouch50 | Self::Ouch42 => self.name_ouch(event),
            Self::Fix => fix::orders::reason_name(event),
            Self::Boe => name_boe(event),
            Self::Ilink3 => ilink3::reason_name(event),
        }
    }

    fn name_ouch(self, event: &VenueEvent) -> Option<&'static str> {
        let reason = event.reason()?;
        match event {
            VenueEvent::Rejected { .. } | VenueEvent::ReplaceRefused { .. } if self == Self::Ouch50 => {
                RejectReason(reason).name()
            }
            VenueEvent::Rejected { .. } | VenueEvent::ReplaceRefused { .. } => {
                RejectReason42(u8::try_from(reason).ok()?).name()
            }
            VenueEvent::Reduced { .. } | VenueEvent::Canceled { .. } => CancelReason(u8::try_from(reason).ok()?).name(),
            // A refused cancel has no reason: the order is in a late cross.
            _ => None,
        }
    }
}

fn name_boe(event: &VenueEvent) -> Option<&'static str> {
    let reason = u8::try_from(event.reason()?).ok()?;
    match event {
        VenueEvent::Reduced { .. } | VenueEvent::Restated { .. } => RestatementReason(reason).name(),
        _ => ReasonCode(reason).name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of the tables in the venues' documents: OUCH 5.0 of April 2023 (hexadecimal 1 to
    /// 2A), OUCH 4.2, and US Equities BOE with the letters that futures add.
    #[test]
    fn each_code_of_the_venues_documents_has_a_name() {
        let rejected = |codes: ReasonCodes, reason| codes.name(&VenueEvent::Rejected { reason });
        let missing: Vec<u16> = (0x01..=0x2a).filter(|code| rejected(ReasonCodes::Ouch50, *code).is_none()).collect();
        assert!(missing.is_empty(), "{missing:x?}");
        for code in *b"THZSDCLMRXNOWoquabcdefghijklmn" {
            assert!(rejected(ReasonCodes::Ouch42, code.into()).is_some(), "{}", char::from(code));
        }
        for code in *b"ABCDEFHIJKLMNOPQRSTUVWXYZfhmnorsuwxyz" {
            assert!(rejected(ReasonCodes::Boe, code.into()).is_some(), "{}", char::from(code));
        }
        for code in *b"UITSDQZKHEFGXeC" {
            let event = VenueEvent::Reduced { by: 1, reason: code.into() };
            assert!(ReasonCodes::Ouch50.name(&event).is_some(), "{}", char::from(code));
        }
        for code in *b"CLPQRSW" {
            let event = VenueEvent::Reduced { by: 0, reason: code.into() };
            assert!(ReasonCodes::Boe.name(&event).is_some(), "{}", char::from(code));
        }
    }

    #[test]
    fn event_without_a_reason_has_no_name() {
        for (_, codes) in ReasonCodes::ALL {
            assert_eq!(codes.name(&VenueEvent::Accepted { venue_id: 1 }), None);
        }
    }
}
