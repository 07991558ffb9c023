//! What `#[derive(Bundle)]` leaves to this crate: which bundle a face is of, and how faces are serialised.

#[cfg(feature = "serde")]
use std::marker::PhantomData;

use dunlin_core::{Call, Callee, Caller, Pairing};
#[cfg(feature = "serde")]
use serde::de::{Deserialize, MapAccess, SeqAccess};
#[cfg(feature = "serde")]
use serde::ser::{Serialize, SerializeStruct};

/// The client's face of a bundle, as `#[derive(Bundle)]` makes them. Also the client's end of a [`Call`].
pub trait ClientFace {
    /// The bundle.
    type Bundle: Pairing<Client = Self>;
}

/// The server's face of a bundle, as `#[derive(Bundle)]` makes them. Also the server's end of a [`Call`].
pub trait ServerFace {
    /// The bundle.
    type Bundle: Pairing<Server = Self>;
}

impl<Q, A> ClientFace for Caller<Q, A> {
    type Bundle = Call<Q, A>;
}

impl<Q, A> ServerFace for Callee<Q, A> {
    type Bundle = Call<Q, A>;
}

/// A field's name as it is written to a message: `type` for `r#type`.
#[cfg(feature = "serde")]
pub const fn field_name(written: &str) -> &str {
    match written.as_bytes() {
        [b'r', b'#', ..] => written.split_at(2).1,
        _ => written,
    }
}

/// Compiles for types that can be sent between nodes.
#[cfg(feature = "serde")]
pub fn travels<T: crate::Portable>() {}

/// A field of a face: `(&&Written(&field)).write(..)` writes it if serde can. (Autoref: the first of the two
/// traits that fits.)
///
/// A message that serde cannot write is reported once, by [`travels`], and not again for each mention of its
/// ends.
#[cfg(feature = "serde")]
#[derive(Debug)]
pub struct Written<'a, E>(pub &'a E);

/// See [`Written`].
#[cfg(feature = "serde")]
pub trait WriteField {
    /// Writes the field.
    fn write<S: SerializeStruct>(&self, fields: &mut S, name: &'static str) -> Result<(), S::Error>;
}

#[cfg(feature = "serde")]
impl<E: Serialize> WriteField for &Written<'_, E> {
    fn write<S: SerializeStruct>(&self, fields: &mut S, name: &'static str) -> Result<(), S::Error> {
        fields.serialize_field(name, self.0)
    }
}

/// See [`Written`].
#[cfg(feature = "serde")]
pub trait WriteNothing {
    /// Only in a program that does not compile.
    fn write<S: SerializeStruct>(&self, _: &mut S, name: &'static str) -> Result<(), S::Error> {
        unreachable!("`{name}` is not portable")
    }
}

#[cfg(feature = "serde")]
impl<E> WriteNothing for Written<'_, E> {}

/// As [`Written`], for reading: `(&&Read::<E>::NEW).element(..)`.
#[cfg(feature = "serde")]
#[derive(Debug)]
pub struct Read<E>(PhantomData<E>);

#[cfg(feature = "serde")]
impl<E> Read<E> {
    /// The only one.
    pub const NEW: Self = Self(PhantomData);
}

/// See [`Read`].
#[cfg(feature = "serde")]
pub trait ReadField<'de, E> {
    /// Reads the next field of a sequence.
    fn element<A: SeqAccess<'de>>(&self, fields: &mut A) -> Result<Option<E>, A::Error>;

    /// Reads the field whose key has been read.
    fn value<A: MapAccess<'de>>(&self, fields: &mut A) -> Result<E, A::Error>;
}

#[cfg(feature = "serde")]
impl<'de, E: Deserialize<'de>> ReadField<'de, E> for &Read<E> {
    fn element<A: SeqAccess<'de>>(&self, fields: &mut A) -> Result<Option<E>, A::Error> {
        fields.next_element()
    }

    fn value<A: MapAccess<'de>>(&self, fields: &mut A) -> Result<E, A::Error> {
        fields.next_value()
    }
}

/// See [`Read`].
#[cfg(feature = "serde")]
pub trait ReadNothing<'de, E> {
    /// Only in a program that does not compile.
    fn element<A: SeqAccess<'de>>(&self, _: &mut A) -> Result<Option<E>, A::Error> {
        unreachable!("a field is not portable")
    }

    /// Only in a program that does not compile.
    fn value<A: MapAccess<'de>>(&self, _: &mut A) -> Result<E, A::Error> {
        unreachable!("a field is not portable")
    }
}

#[cfg(feature = "serde")]
impl<E> ReadNothing<'_, E> for Read<E> {}

/// Serialises a face, field by field: called by `#[derive(Bundle)]` only.
///
/// Only this crate knows whether it was built with serde, so the derive leaves that to it.
#[cfg(not(feature = "serde"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __face_serde {
    ($face:ident { $($field:ident: $end:ty),* $(,)? } $($travels:ty),*) => {};
}

/// Serialises a face, field by field: called by `#[derive(Bundle)]` only.
///
/// As serde's derive would, but reached through this crate, so that users need not depend on
/// serde. The items inside have `__` names, for a field's type to find the user's items instead.
#[cfg(feature = "serde")]
#[doc(hidden)]
#[macro_export]
macro_rules! __face_serde {
    ($face:ident { $($field:ident: $end:ty),* $(,)? } $($travels:ty),*) => {
        $(const _: fn() = $crate::__rt::travels::<$travels>;)*

        const _: () = {
            #[allow(unused_imports, reason = "of the traits only those that fit are used")]
            use $crate::__rt::{ReadField as _, ReadNothing as _, WriteField as _, WriteNothing as _};

            const __FACE: &str = ::core::stringify!($face);
            const __FIELDS: &[&str] = &[$($crate::__rt::field_name(::core::stringify!($field))),*];

            #[automatically_derived]
            impl $crate::serde::Serialize for $face {
                fn serialize<__S>(&self, serializer: __S) -> ::core::result::Result<__S::Ok, __S::Error>
                where
                    __S: $crate::serde::Serializer,
                {
                    #[allow(unused_mut)]
                    let mut fields = $crate::serde::Serializer::serialize_struct(
                        serializer,
                        __FACE,
                        __FIELDS.len(),
                    )?;
                    $((&&$crate::__rt::Written(&self.$field))
                        .write(&mut fields, __FIELDS[__Field::$field as usize])?;)*
                    $crate::serde::ser::SerializeStruct::end(fields)
                }
            }

            #[automatically_derived]
            impl<'de> $crate::serde::Deserialize<'de> for $face {
                fn deserialize<__D>(deserializer: __D) -> ::core::result::Result<Self, __D::Error>
                where
                    __D: $crate::serde::Deserializer<'de>,
                {
                    $crate::serde::Deserializer::deserialize_struct(
                        deserializer,
                        __FACE,
                        __FIELDS,
                        __FaceVisitor,
                    )
                }
            }

            #[automatically_derived]
            impl $crate::Lend for $face {
                type Other = ();

                fn lone(_: $crate::Shared<Self>) -> ::core::option::Option<$crate::carrier::Agent> {
                    ::core::option::Option::None
                }

                fn another() -> (::core::option::Option<$crate::carrier::Agent>, ()) {
                    (::core::option::Option::None, ())
                }

                fn carry(_: $crate::Shared<Self>, (): ()) -> ::core::option::Option<$crate::carrier::Chore> {
                    ::core::option::Option::None
                }

                fn adopt() -> (
                    ::core::option::Option<Self>,
                    <Self as $crate::End>::Link,
                    ::core::option::Option<$crate::carrier::Agent>,
                ) {
                    // It comes with the claim.
                    (::core::option::Option::None, ::core::default::Default::default(), ::core::option::Option::None)
                }
            }

            /// Which field; its number is its place in `__FIELDS`.
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            #[derive(Clone, Copy)]
            enum __Field {
                $($field,)*
                __Unknown,
            }

            impl<'de> $crate::serde::Deserialize<'de> for __Field {
                fn deserialize<__D>(deserializer: __D) -> ::core::result::Result<Self, __D::Error>
                where
                    __D: $crate::serde::Deserializer<'de>,
                {
                    $crate::serde::Deserializer::deserialize_identifier(deserializer, __FieldVisitor)
                }
            }

            struct __FieldVisitor;

            impl $crate::serde::de::Visitor<'_> for __FieldVisitor {
                type Value = __Field;

                fn expecting(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.write_str("field identifier")
                }

                fn visit_u64<__E>(self, index: u64) -> ::core::result::Result<__Field, __E> {
                    $(if index == __Field::$field as u64 {
                        return ::core::result::Result::Ok(__Field::$field);
                    })*
                    ::core::result::Result::Ok(__Field::__Unknown)
                }

                fn visit_str<__E>(self, name: &str) -> ::core::result::Result<__Field, __E> {
                    $(if name == __FIELDS[__Field::$field as usize] {
                        return ::core::result::Result::Ok(__Field::$field);
                    })*
                    ::core::result::Result::Ok(__Field::__Unknown)
                }

                fn visit_bytes<__E>(self, name: &[u8]) -> ::core::result::Result<__Field, __E> {
                    $(if name == __FIELDS[__Field::$field as usize].as_bytes() {
                        return ::core::result::Result::Ok(__Field::$field);
                    })*
                    ::core::result::Result::Ok(__Field::__Unknown)
                }
            }

            struct __FaceVisitor;

            #[allow(unused_mut, unused_variables)]
            impl<'de> $crate::serde::de::Visitor<'de> for __FaceVisitor {
                type Value = $face;

                fn expecting(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    ::core::write!(f, "struct {} with {} fields", __FACE, __FIELDS.len())
                }

                fn visit_seq<__A>(self, mut fields: __A) -> ::core::result::Result<$face, __A::Error>
                where
                    __A: $crate::serde::de::SeqAccess<'de>,
                {
                    $(let ::core::option::Option::Some($field) =
                        (&&$crate::__rt::Read::<$end>::NEW).element(&mut fields)?
                    else {
                        return ::core::result::Result::Err(
                            $crate::serde::de::Error::invalid_length(
                                __Field::$field as usize,
                                &__FaceVisitor,
                            ),
                        );
                    };)*
                    ::core::result::Result::Ok($face { $($field),* })
                }

                fn visit_map<__A>(self, mut fields: __A) -> ::core::result::Result<$face, __A::Error>
                where
                    __A: $crate::serde::de::MapAccess<'de>,
                {
                    $(let mut $field: ::core::option::Option<$end> = ::core::option::Option::None;)*
                    while let ::core::option::Option::Some(key) =
                        $crate::serde::de::MapAccess::next_key::<__Field>(&mut fields)?
                    {
                        match key {
                            $(__Field::$field => {
                                if $field.is_some() {
                                    return ::core::result::Result::Err(
                                        $crate::serde::de::Error::duplicate_field(
                                            __FIELDS[__Field::$field as usize],
                                        ),
                                    );
                                }
                                $field = ::core::option::Option::Some(
                                    (&&$crate::__rt::Read::<$end>::NEW).value(&mut fields)?,
                                );
                            })*
                            __Field::__Unknown => {
                                $crate::serde::de::MapAccess::next_value::<
                                    $crate::serde::de::IgnoredAny,
                                >(&mut fields)?;
                            }
                        }
                    }
                    $(let ::core::option::Option::Some($field) = $field else {
                        return ::core::result::Result::Err(
                            $crate::serde::de::Error::missing_field(
                                __FIELDS[__Field::$field as usize],
                            ),
                        );
                    };)*
                    ::core::result::Result::Ok($face { $($field),* })
                }
            }
        };
    };
}
