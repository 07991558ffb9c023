//! Instructions: operation in 8 bits, `a` and `b` in 16 each, `c` in 24.

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction(pub(crate) u64);

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Operations. `r[a]` is a register, `c` a signed number where it is a distance or a constant.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Op { $($(#[$doc])* $name,)* }

        impl Op {
            /// All of them, by number.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];
        }

        /// The numbers of the operations: the machine's loop matches on them without a look-up.
        #[allow(non_upper_case_globals, reason = "each is named as its operation")]
        pub(crate) mod number {
            $(pub(crate) const $name: u8 = super::Op::$name as u8;)*
        }
    };
}

ops! {
    /// Start of a procedure of `a` parameters, and one for the rest if `b`; `c` registers.
    Entry,
    /// Start of a clause: with other arguments goes to the next, at `c`.
    EntryOr,
    /// After `EntryOr`: `c` registers.
    Enter,
    /// `r[a] = r[b]`
    Move,
    /// `r[a] = r[b]`, then `r[a+1] = r[c]`
    MoveTwo,
    /// `r[a]` = the integer in `b` and `c`.
    LoadInt,
    /// `r[a]` = the immediate whose bits are in `b` and `c`.
    LoadImmediate,
    /// `r[a]` = constant `c`.
    Constant,
    /// `r[a]` = global `c`.
    Global,
    /// Global `c` = `r[a]`.
    Define,
    /// `r[a]` = variable `c` of the closure.
    Free,
    /// `r[a]` = a closure of the code at `c` with the variables `r[a..a+b]`.
    Closure,
    /// The same without a collection, since `Patch` follows.
    ClosureOpen,
    /// Variable `c` of the closure `r[a]` = `r[b]`.
    Patch,
    /// `r[a]` = a new cell.
    Cell,
    /// `r[a]` = the value in the cell `r[b]`.
    CellRead,
    /// Value of the cell `r[a]` = `r[b]`; `r[c]` is free.
    CellWrite,
    /// Goes to `c`.
    Jump,
    /// Goes to `c` if `r[a]` is false.
    JumpFalse,
    /// Goes to `c` if `r[a]` is not false.
    JumpTrue,
    /// Goes to `c` if `r[a]` is `()`.
    JumpNull,
    /// Goes to `c` if `r[a]` is not `()`.
    JumpNotNull,
    /// Goes to `c` if `r[a]` is a pair.
    JumpPair,
    /// Goes to `c` if `r[a]` is no pair.
    JumpNotPair,
    /// Goes to `c` if `r[a]` is `r[b]`.
    JumpEq,
    /// Goes to `c` if `r[a]` is not `r[b]`.
    JumpNotEq,
    /// Before the first instruction of a loop, where the registers below `a` are live. It never runs.
    LoopHead,
    /// Goes to the loop at `c`; costs fuel.
    Loop,
    /// The same after `r[a] = r[b]`.
    LoopMove,
    /// `r[a]` = `r[a]` called with the `b` arguments after it.
    Call,
    /// The same as the last act of this procedure.
    TailCall,
    /// Returns `r[b]`.
    Return,
    /// `r[a]` = primitive `c` of `r[a..a+b]`.
    Primitive,
    /// `r[a]` = primitive `c` of `r[1..a]` and the items of the list `r[a]`.
    PrimitiveSpread,
    /// What a few procedures do with the machine itself; `c` says which.
    Control,
    /// `r[a] = r[b] + r[c]`
    Add,
    /// `r[a] = r[b] - r[c]`
    Subtract,
    /// `r[a] = r[b] * r[c]`
    Multiply,
    /// `r[a]` = the quotient of `r[b]` and `r[c]`
    Quotient,
    /// `r[a]` = the remainder of `r[b]` and `r[c]`
    Remainder,
    /// `r[a]` = `r[b]` modulo `r[c]`
    Modulo,
    /// `r[a] = r[b] + c`
    AddConstant,
    /// `r[a]` = whether `r[b] < r[c]`
    Less,
    /// `r[a]` = whether `r[b] <= r[c]`
    LessEqual,
    /// `r[a]` = whether `r[b] = r[c]`
    NumberEqual,
    /// `r[a]` = whether `r[b] < c`
    LessConstant,
    /// `r[a]` = whether `r[b] <= c`
    LessEqualConstant,
    /// `r[a]` = whether `r[b] > c`
    GreaterConstant,
    /// `r[a]` = whether `r[b] >= c`
    GreaterEqualConstant,
    /// `r[a]` = whether `r[b] = c`
    NumberEqualConstant,
    /// As without `Jump`, and takes the `JumpFalse` that follows in the same step.
    LessJump,
    /// As without `Jump`, and takes the `JumpFalse` that follows in the same step.
    LessEqualJump,
    /// As without `Jump`, and takes the `JumpFalse` that follows in the same step.
    NumberEqualJump,
    /// As without `Jump`, and takes the `JumpFalse` that follows in the same step.
    LessConstantJump,
    /// As without `Jump`, and takes the `JumpFalse` that follows in the same step.
    LessEqualConstantJump,
    /// As without `Jump`, and takes the `JumpFalse` that follows in the same step.
    GreaterConstantJump,
    /// As without `Jump`, and takes the `JumpFalse` that follows in the same step.
    GreaterEqualConstantJump,
    /// As without `Jump`, and takes the `JumpFalse` that follows in the same step.
    NumberEqualConstantJump,
    /// `r[a]` = the first of the pair `r[b]`
    Car,
    /// `r[a]` = the second of the pair `r[b]`
    Cdr,
    /// `r[a]` = a pair of `r[b]` and `r[c]`
    Cons,
    /// `r[a]` = whether `r[b]` is `()`
    IsNull,
    /// `r[a]` = whether `r[b]` is a pair
    IsPair,
    /// `r[a]` = whether `r[b]` is false
    Not,
    /// `r[a]` = whether `r[b]` is `r[c]`
    Eq,
    /// `r[a]` = item `r[c]` of the vector `r[b]`
    VectorRef,
}

/// The least and the largest number in `c`.
pub(crate) const C_RANGE: std::ops::RangeInclusive<i64> = -(1 << 23)..=(1 << 23) - 1;

impl Op {
    /// Whether a call takes place here whose value goes to register `a`: the instruction calls, or raises.
    pub(crate) fn can_fail(self) -> bool {
        match self {
            Self::Call | Self::Global | Self::CellRead | Self::Primitive | Self::PrimitiveSpread => true,
            Self::Car | Self::Cdr | Self::VectorRef => true,
            other => (Self::Add as u8..=Self::NumberEqualConstantJump as u8).contains(&(other as u8)),
        }
    }
}

impl Instruction {
    /// An instruction; `c` is cut to its 24 bits.
    pub(crate) const fn new(op: Op, a: u16, b: u16, c: i64) -> Self {
        Self((op as u64) | ((a as u64) << 8) | ((b as u64) << 24) | ((c as u64 & 0xff_ffff) << 40))
    }

    /// An instruction with a number of 40 bits in `b` and `c`.
    pub(crate) const fn wide(op: Op, a: u16, value: i64) -> Self {
        Self((op as u64) | ((a as u64) << 8) | ((value as u64) << 24))
    }

    /// The operation.
    #[inline]
    pub(crate) fn op(self) -> Op {
        Op::ALL[(self.0 & 0xff) as usize]
    }

    /// The number of the operation.
    #[inline]
    pub(crate) const fn number(self) -> u8 {
        self.0 as u8
    }

    /// `a`
    #[inline]
    pub(crate) const fn a(self) -> usize {
        (self.0 >> 8) as u16 as usize
    }

    /// `b`
    #[inline]
    pub(crate) const fn b(self) -> usize {
        (self.0 >> 24) as u16 as usize
    }

    /// `c`, signed.
    #[inline]
    pub(crate) const fn c(self) -> i64 {
        (self.0 as i64) >> 40
    }

    /// `c` as the number of a register or of an entry in a table.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        (self.0 >> 40) as usize
    }

    /// `c` as the number of a register.
    #[inline]
    pub(crate) const fn register(self) -> usize {
        (self.0 >> 40) as u16 as usize
    }

    /// The number in `b` and `c`, signed.
    #[inline]
    pub(crate) const fn wide_value(self) -> i64 {
        (self.0 as i64) >> 24
    }

    /// The same with another `c`.
    pub(crate) const fn with_c(self, c: i64) -> Self {
        Self((self.0 & 0xff_ffff_ffff) | ((c as u64 & 0xff_ffff) << 40))
    }
}
