//! The primitive types, and numbers read by them.

/// The order of a schema's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    /// The least significant byte first, unless the schema says otherwise.
    #[default]
    Little,
    /// The most significant byte first.
    Big,
}

/// A primitive type of SBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the standard")]
pub enum Primitive {
    Char,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float,
    Double,
}

impl Primitive {
    /// By the standard's name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "char" => Self::Char,
            "int8" => Self::Int8,
            "int16" => Self::Int16,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "uint8" => Self::Uint8,
            "uint16" => Self::Uint16,
            "uint32" => Self::Uint32,
            "uint64" => Self::Uint64,
            "float" => Self::Float,
            "double" => Self::Double,
            _ => return None,
        })
    }

    /// Bytes of one.
    pub const fn len(self) -> usize {
        match self {
            Self::Char | Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Int64 | Self::Uint64 | Self::Double => 8,
        }
    }

    /// Never: each has a byte at least.
    pub const fn is_empty(self) -> bool {
        false
    }

    /// Whether it has a sign.
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64)
    }

    /// Whether it is a floating number.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Float | Self::Double)
    }

    /// The value that stands for null where a schema names none: the least of signed numbers, the
    /// largest of others, 0 of characters. That of floating numbers is NaN and not here.
    pub const fn null(self) -> i128 {
        match self {
            Self::Char | Self::Float | Self::Double => 0,
            Self::Int8 => i8::MIN as i128,
            Self::Int16 => i16::MIN as i128,
            Self::Int32 => i32::MIN as i128,
            Self::Int64 => i64::MIN as i128,
            Self::Uint8 => u8::MAX as i128,
            Self::Uint16 => u16::MAX as i128,
            Self::Uint32 => u32::MAX as i128,
            Self::Uint64 => u64::MAX as i128,
        }
    }

    /// The whole number in `bytes`, which are as long as the type; the bits of a floating one.
    pub(super) fn read(self, bytes: &[u8], order: ByteOrder) -> i128 {
        let byte = |idx: usize| match order {
            ByteOrder::Little => bytes[bytes.len() - 1 - idx],
            ByteOrder::Big => bytes[idx],
        };
        let unsigned = (0..bytes.len()).fold(0_i128, |value, idx| value << 8 | i128::from(byte(idx)));
        let bits = 8 * bytes.len() as u32;
        if self.is_signed() && unsigned >> (bits - 1) == 1 { unsigned - (1 << bits) } else { unsigned }
    }
}
