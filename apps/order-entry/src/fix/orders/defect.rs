//! What is wrong with a message that was received whole, by the numbers and names of FIX.

use core::fmt;

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($number:literal $variant:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(
                #[doc = concat!($text, " (", stringify!($number), ").")]
                $variant,
            )*
        }

        impl $name {
            /// The number on the wire.
            pub const fn to_wire(self) -> u64 {
                match self { $(Self::$variant => $number,)* }
            }

            /// The reason with this number.
            pub const fn from_wire(number: u64) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }
        }

        impl $name {
            /// The name in the specification.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

reasons! {
    /// SessionRejectReason (373).
    Reason {
        0 InvalidTag "Invalid tag number",
        1 Missing "Required tag missing",
        2 NotForType "Tag not defined for this message type",
        3 Undefined "Undefined tag",
        4 Empty "Tag specified without a value",
        5 Value "Value is incorrect (out of range) for this tag",
        6 Format "Incorrect data format for value",
        7 Decryption "Decryption problem",
        8 Signature "Signature problem",
        9 CompId "CompID problem",
        10 SendingTime "SendingTime accuracy problem",
        11 MsgType "Invalid MsgType",
        12 Xml "XML validation error",
        13 Repeated "Tag appears more than once",
        14 Order "Tag specified out of required order",
        15 GroupOrder "Repeating group fields out of order",
        16 GroupCount "Incorrect NumInGroup count for repeating group",
        17 Delimiter "Non \"data\" value includes field delimiter",
        18 Version "Invalid or unsupported application version",
        99 Other "Other",
    }
}

reasons! {
    /// BusinessRejectReason (380).
    BusinessReason {
        0 Other "Other",
        1 UnknownId "Unknown ID",
        2 UnknownSecurity "Unknown security",
        3 UnsupportedMsgType "Unsupported message type",
        4 Unavailable "Application not available",
        5 ConditionallyMissing "Conditionally required field missing",
        6 NotAuthorized "Not authorized",
        7 DeliverTo "DeliverTo firm not available at this time",
        8 Throttle "Throttle limit exceeded",
        9 ThrottleDisconnected "Throttle limit exceeded, session will be disconnected",
        10 ThrottleOnRequest "Throttled messages rejected on request",
        18 PriceIncrement "Invalid price increment",
    }
}

/// The first field of a message that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Defect {
    /// The field's tag.
    pub tag: u32,
    /// The rule.
    pub reason: Reason,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, field {}", self.reason, self.tag)
    }
}

impl core::error::Error for Defect {}
