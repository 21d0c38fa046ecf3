//! Messages of the session (FIXP).

use zerocopy::little_endian::{U16, U32, U64};

use crate::Text;
use crate::codec::layouts;

layouts! {
    skip 0, kind u16;

    /// A client begins a session, once a week, with a rising identifier.
    500 Negotiate 76 {
        /// HMAC-SHA256 of the canonical request.
        signature: [u8; 32],
        /// The key's identifier.
        access_key: Text<20>,
        /// The session's identifier.
        uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// The session.
        session: Text<3>,
        /// The firm.
        firm: Text<5>,
    }

    /// The session is negotiated.
    501 NegotiationResponse 33 {
        /// The session's identifier.
        uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// In how many days the key expires; 65535 is not said.
        key_expires_days: U16,
        /// 1 primary, 0 backup, 255 not said.
        fault_tolerance: u8,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
        /// The last number that the venue sent before this message.
        previous_seq: U32,
        /// The session's identifier at that time.
        previous_uuid: U64,
        /// Which environment; 255 not said.
        environment: u8,
    }

    /// The session is refused.
    502 NegotiationReject 69 {
        /// Why.
        reason: Text<48>,
        /// The session's identifier.
        uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// The code of it.
        error: U16,
        /// 1 primary, 0 backup, 255 not said.
        fault_tolerance: u8,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
        /// Which environment; 255 not said.
        environment: u8,
    }

    /// A client begins a connection of a session.
    503 Establish 132 {
        /// HMAC-SHA256 of the canonical request.
        signature: [u8; 32],
        /// The key's identifier.
        access_key: Text<20>,
        /// Name of the trading system.
        system: Text<30>,
        /// Its version.
        system_version: Text<10>,
        /// Its vendor.
        system_vendor: Text<10>,
        /// The session's identifier.
        uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// The sender's next number.
        next_seq: U32,
        /// The session.
        session: Text<3>,
        /// The firm.
        firm: Text<5>,
        /// The longest silence before a keep-alive, ms.
        keep_alive_ms: U16,
    }

    /// The connection is established.
    504 EstablishmentAck 39 {
        /// The session's identifier.
        uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// The sender's next number.
        next_seq: U32,
        /// The last number that the venue sent before this message.
        previous_seq: U32,
        /// The session's identifier at that time.
        previous_uuid: U64,
        /// The longest silence before a keep-alive, ms.
        keep_alive_ms: U16,
        /// In how many days the key expires; 65535 is not said.
        key_expires_days: U16,
        /// 1 primary, 0 backup, 255 not said.
        fault_tolerance: u8,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
        /// Which environment; 255 not said.
        environment: u8,
    }

    /// The connection is refused.
    505 EstablishmentReject 73 {
        /// Why.
        reason: Text<48>,
        /// The session's identifier.
        uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// The sender's next number.
        next_seq: U32,
        /// The code of it.
        error: U16,
        /// 1 primary, 0 backup, 255 not said.
        fault_tolerance: u8,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
        /// Which environment; 255 not said.
        environment: u8,
    }

    /// The keep-alive, and the way to skip numbers.
    506 Sequence 14 {
        /// The session's identifier.
        uuid: U64,
        /// The sender's next number.
        next_seq: U32,
        /// 1 primary, 0 backup, 255 not said.
        fault_tolerance: u8,
        /// 1: nothing was heard for a keep-alive interval.
        lapsed: u8,
    }

    /// The connection ends. The other end answers with the same.
    507 Terminate 67 {
        /// Why.
        reason: Text<48>,
        /// The session's identifier.
        uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// The code of it.
        error: U16,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
    }

    /// A client asks for missing messages, at most 2,500.
    508 RetransmitRequest 30 {
        /// The session's identifier.
        uuid: U64,
        /// The identifier of an earlier session that is asked about; all ones is none.
        last_uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// The first number.
        from_seq: U32,
        /// How many.
        count: U16,
    }

    /// The missing messages follow.
    509 Retransmission 31 {
        /// The session's identifier.
        uuid: U64,
        /// The identifier of an earlier session that is asked about; all ones is none.
        last_uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// The first number.
        from_seq: U32,
        /// How many.
        count: U16,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
    }

    /// The missing messages do not follow.
    510 RetransmitReject 75 {
        /// Why.
        reason: Text<48>,
        /// The session's identifier.
        uuid: U64,
        /// The identifier of an earlier session that is asked about; all ones is none.
        last_uuid: U64,
        /// Time of the request; an answer echoes it.
        at_ns: U64,
        /// The code of it.
        error: U16,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
    }

    /// The venue did not see these messages of the client, and did not apply them.
    513 NotApplied 17 {
        /// The session's identifier.
        uuid: U64,
        /// The first number.
        from_seq: U32,
        /// How many.
        count: U32,
        /// Whether and how the message was delayed by its segments; 255 is not.
        split: u8,
    }
}
