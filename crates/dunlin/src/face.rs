//! What `#[derive(Bundle)]` leaves to this crate: which bundle a face is of, and how faces are serialised.

use dunlin_core::{Call, Callee, Caller, Pairing};

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

/// Serialises a face, field by field: called by `#[derive(Bundle)]` only.
///
/// Only this crate knows whether it was built with serde, so the derive leaves that to it.
#[cfg(not(feature = "serde"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __face_serde {
    ($face:ident { $($field:ident: $end:ty),* $(,)? }) => {};
}

/// Serialises a face, field by field: called by `#[derive(Bundle)]` only.
///
/// As serde's derive would, but reached through this crate, so that users need not depend on
/// serde. The items inside have `__` names, for a field's type to find the user's items instead.
#[cfg(feature = "serde")]
#[doc(hidden)]
#[macro_export]
macro_rules! __face_serde {
    ($face:ident { $($field:ident: $end:ty),* $(,)? }) => {
        const _: () = {
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
                    $($crate::serde::ser::SerializeStruct::serialize_field::<$end>(
                        &mut fields,
                        __FIELDS[__Field::$field as usize],
                        &self.$field,
                    )?;)*
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
                        $crate::serde::de::SeqAccess::next_element::<$end>(&mut fields)?
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
                                    $crate::serde::de::MapAccess::next_value::<$end>(&mut fields)?,
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
