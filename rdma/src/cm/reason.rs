//! Why a connection is refused, by the names of the specification (InfiniBand 12.6.7.2).

use core::fmt;

macro_rules! codes {
    ($(#[$about:meta])* $name:ident: $code:ty { $($variant:ident = $number:literal $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("Code ", $number, ": ", $text, ".")] $variant,)*
            /// A code that the specification reserves.
            Other($code),
        }

        impl $name {
            /// The code on the wire.
            pub const fn code(self) -> $code {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Other(code) => code,
                }
            }

            /// The name of a code.
            pub const fn from_code(code: $code) -> Self {
                match code {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)*
                    Self::Other(code) => write!(f, "reserved code {code}"),
                }
            }
        }
    };
}

codes! {
    /// Why a REJ was sent.
    RejectReason: u16 {
        NoQp = 1 "no queue pair available",
        NoEec = 2 "no end-to-end context available",
        NoResources = 3 "no resources available",
        Timeout = 4 "timeout",
        Unsupported = 5 "unsupported request",
        InvalidCommId = 6 "invalid communication ID",
        InvalidCommInstance = 7 "invalid communication instance",
        InvalidServiceId = 8 "invalid service ID: nobody listens at the port",
        InvalidTransport = 9 "invalid transport service type",
        StaleConnection = 10 "stale connection",
        NoRdc = 11 "no reliable datagram channel",
        InvalidGid = 12 "primary remote port GID rejected",
        InvalidLid = 13 "primary remote port LID rejected",
        InvalidSl = 14 "invalid primary service level",
        InvalidTrafficClass = 15 "invalid primary traffic class",
        InvalidHopLimit = 16 "invalid primary hop limit",
        InvalidPacketRate = 17 "invalid primary packet rate",
        InvalidAlternateGid = 18 "alternate remote port GID rejected",
        InvalidAlternateLid = 19 "alternate remote port LID rejected",
        InvalidAlternateSl = 20 "invalid alternate service level",
        InvalidAlternateTrafficClass = 21 "invalid alternate traffic class",
        InvalidAlternateHopLimit = 22 "invalid alternate hop limit",
        InvalidAlternatePacketRate = 23 "invalid alternate packet rate",
        CmRedirect = 24 "port and connection manager redirection",
        PortRedirect = 25 "port redirection",
        InvalidMtu = 26 "invalid path MTU",
        InsufficientResources = 27 "insufficient responder resources",
        ConsumerDefined = 28 "rejected by the consumer",
        InvalidRnrRetry = 29 "RNR retry count rejected",
        DuplicateCommId = 30 "duplicate local communication ID",
        InvalidClassVersion = 31 "invalid class version",
        InvalidFlowLabel = 32 "invalid primary flow label",
        InvalidAlternateFlowLabel = 33 "invalid alternate flow label",
    }
}

codes! {
    /// What a SIDR_REP says.
    SidrStatus: u8 {
        Success = 0 "success",
        Unsupported = 1 "service ID not supported",
        Rejected = 2 "rejected by the service provider",
        NoQp = 3 "no queue pair available",
        Redirect = 4 "redirected",
        UnsupportedVersion = 5 "unsupported version",
    }
}
