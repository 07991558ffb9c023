//! `#[derive(Bundle)]`: parse the description, then generate the two faces and the code that makes them.
//!
//! ```text
//! #[derive(Bundle)]                 pub struct TillClient { pay: <ToServer<u64> as Pairing>::Client }
//! pub struct Till {            =>   pub struct TillServer { pay: <ToServer<u64> as Pairing>::Server }
//!     pay: ToServer<u64>,           impl Pairing for Till { fn pair(factory) -> (TillClient, TillServer) }
//! }                                 impl Bundle for Till {}
//!                                   // for each face: End, ClientFace or ServerFace, Tethered, serde
//! ```
//!
//! For a field of a type outside `dunlin_core::bundle`, the compiler checks in a constant whether the type is
//! a `Pairing`. If it is not, the field's ends have a type that fits everywhere. So a wrong field is one
//! error, at the field, instead of one for each mention of a face. The macro recognises the types of
//! `dunlin_core::bundle` by their names and does not check them, because a face that carries itself
//! (`referral: ToClient<ShopClient>`) would need its own size to know its fields.
//!
//! The serde implementations are unconditional. With `where <field's end>: Portable`, the bounds of a face
//! that carries itself (`referral: ToClient<ShopClient>`) would be infinite (E0275). So the author declares
//! `#[bundle(local)]` when the messages cannot be serialised. Checks of the messages, each once, stand beside
//! the implementations. Only dunlin knows whether it was built with serde, so the implementations come from
//! its macro `__face_serde!`, which is empty without serde.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Field, Fields, GenericArgument, PathArguments, Result, Type, Visibility,
    parse2,
};

use crate::place::placed;

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    Description::of(parse2(input)?).map(|description| description.expand())
}

/// The content of the author's struct.
struct Description {
    name: Ident,
    visibility: Visibility,
    local: bool,
    members: Vec<Member>,
}

/// One field: a connection between a client and a server.
struct Member {
    name: Ident,
    visibility: Visibility,
    pairing: Type,
    policy: Option<Expr>,
    docs: Vec<Attribute>,
}

impl Description {
    fn of(input: DeriveInput) -> Result<Self> {
        let fields = match input.data {
            Data::Struct(data) => data.fields,
            Data::Enum(data) => {
                return Err(Error::new(data.enum_token.span, "a bundle must be a struct"));
            }
            Data::Union(data) => {
                return Err(Error::new(data.union_token.span, "a bundle must be a struct"));
            }
        };
        if !input.generics.params.is_empty() {
            let what = "a bundle may not have generic parameters";
            return Err(Error::new_spanned(input.generics, what));
        }
        if let Some(clause) = input.generics.where_clause {
            return Err(Error::new_spanned(clause, "a bundle may not have a `where` clause"));
        }
        let fields = match fields {
            Fields::Named(fields) => fields.named,
            Fields::Unnamed(fields) => {
                let what = "the channels of a bundle must have names: `struct Name { field: Type }`";
                return Err(Error::new_spanned(fields, what));
            }
            Fields::Unit => {
                return Err(Error::new(input.ident.span(), "a bundle must have channels: `{ field: Type }`"));
            }
        };
        Ok(Self {
            local: is_local(&input.attrs)?,
            name: input.ident,
            visibility: input.vis,
            members: fields.into_iter().map(Member::of).collect::<Result<_>>()?,
        })
    }

    fn expand(&self) -> TokenStream {
        let client = self.face(Side::Client);
        let server = self.face(Side::Server);
        let pairing = self.pairing();
        let reads = self.reads();
        let checks = self.checks();
        quote!(#client #server #pairing #reads #checks)
    }

    /// One error, at the field, for a type that is no `Pairing`.
    fn checks(&self) -> TokenStream {
        let checks = self.members.iter().filter(|member| !member.is_known()).map(|member| {
            let pairing = &member.pairing;
            quote_spanned!(Span::mixed_site()=> const _: fn() = ::dunlin::__rt::is_pairing::<#pairing>;)
        });
        quote!(#(#checks)*)
    }

    /// What must be portable for the faces to move: the messages, each once.
    fn travelling(&self) -> Vec<TokenStream> {
        let mut travelling: Vec<(String, TokenStream)> = Vec::new();
        for tokens in self.members.iter().flat_map(Member::travelling) {
            let name = tokens.to_string();
            if travelling.iter().all(|(other, _)| *other != name) {
                travelling.push((name, tokens));
            }
        }
        travelling.into_iter().map(|(_, tokens)| tokens).collect()
    }

    fn face(&self, side: Side) -> TokenStream {
        let Self { name, visibility, members, .. } = self;
        let face = self.face_name(side);
        let (docs, share_docs) = side.docs(name);
        let face_trait = format_ident!("{}Face", side.name());
        let tethered = self.tethered(&face);
        let fields = members.iter().map(|member| member.field(side));
        let serde = (!self.local).then(|| {
            let fields = members.iter().map(|member| {
                let (name, end) = (&member.name, member.end(side));
                quote!(#name: #end)
            });
            let travelling = match side {
                Side::Client => self.travelling(),
                // The same messages.
                Side::Server => Vec::new(),
            };
            quote!(::dunlin::__face_serde! { #face { #(#fields),* } #(#travelling),* })
        });
        quote! {
            #[doc = #docs]
            #[allow(dead_code)]
            #visibility struct #face { #(#fields),* }

            impl #face {
                #[doc = #share_docs]
                #[allow(dead_code)]
                #visibility fn share(self) -> ::dunlin::Shared<Self> {
                    ::dunlin::End::share(self)
                }
            }

            impl ::dunlin::End for #face {
                type Link = ::dunlin::__rt::Tethers;
                fn link(&self) -> ::dunlin::__rt::Tethers {
                    ::dunlin::__rt::Tethers::of(self)
                }
            }

            impl ::dunlin::#face_trait for #face {
                type Bundle = #name;
            }

            #tethered

            #serde
        }
    }

    /// Implements `Tethered`, which lets the ending of a process with this face reach its channels.
    fn tethered(&self, face: &Ident) -> TokenStream {
        let fields = self.members.iter().map(|member| &member.name);
        quote_spanned! {Span::mixed_site()=>
            impl ::dunlin::__rt::Tethered for #face {
                fn tether(&self, tethers: &mut ::std::vec::Vec<::dunlin::__rt::Tether>) {
                    #[allow(unused_imports, reason = "of the traits only those that fit are used")]
                    use ::dunlin::__rt::{TieEnd as _, TieNothing as _};
                    #((&&::dunlin::__rt::Tie(&self.#fields)).tie(tethers);)*
                }
            }
        }
    }

    /// `Pairing`, `Bundle` and the inherent `pair`.
    fn pairing(&self) -> TokenStream {
        let Self { name, visibility, members, .. } = self;
        let client = self.face_name(Side::Client);
        let server = self.face_name(Side::Server);
        let fields: Vec<_> = members.iter().map(|member| &member.name).collect();
        // Not the fields' names: a `#[policy(fifo(8))]` may follow a field called `fifo`.
        let pairs: Vec<_> =
            (0..members.len()).map(|index| format_ident!("pair{index}", span = Span::mixed_site())).collect();
        let factory = Ident::new("factory", Span::mixed_site());
        let made = members.iter().map(|member| member.make(&factory));
        let pair_docs = format!("Makes the channels of a [`{name}`], and its two faces.");
        quote! {
            impl ::dunlin::Pairing for #name {
                type Client = #client;
                type Server = #server;

                fn pair(#factory: &::dunlin::ChannelFactory) -> (#client, #server) {
                    #(let #pairs = #made;)*
                    (#client { #(#fields: #pairs.0),* }, #server { #(#fields: #pairs.1),* })
                }
            }

            impl ::dunlin::Bundle for #name {}

            impl #name {
                #[doc = #pair_docs]
                #[allow(dead_code)]
                #visibility fn pair() -> (#client, #server) {
                    <Self as ::dunlin::Pairing>::pair(
                        &<::dunlin::ChannelFactory as ::core::default::Default>::default(),
                    )
                }
            }
        }
    }

    /// Reads each field: this struct is never constructed, so the compiler would report dead code.
    fn reads(&self) -> TokenStream {
        let name = &self.name;
        let fields = self.members.iter().map(|member| &member.name);
        quote_spanned! {Span::mixed_site()=>
            const _: fn(&#name) = |_bundle| { #(let _ = &_bundle.#fields;)* };
        }
    }

    fn face_name(&self, side: Side) -> Ident {
        format_ident!("{}{}", self.name, side.name())
    }
}

impl Member {
    fn of(field: Field) -> Result<Self> {
        let mut policy = None;
        let mut docs = Vec::new();
        for attribute in field.attrs {
            if attribute.path().is_ident("policy") {
                if policy.is_some() {
                    return Err(Error::new_spanned(attribute, "this field already has a policy"));
                }
                let what = "a policy must be an expression: `#[policy(fifo(8))]`";
                let parsed = attribute.parse_args().map_err(|_| Error::new_spanned(&attribute, what));
                policy = Some(parsed?);
            } else if attribute.path().is_ident("bundle") {
                let what = "`#[bundle(..)]` must stand above the struct";
                return Err(Error::new_spanned(attribute, what));
            } else if attribute.path().is_ident("doc") {
                docs.push(attribute);
            }
        }
        let name = field.ident.ok_or_else(|| Error::new_spanned(&field.ty, "a field has a name"))?;
        Ok(Self { name, visibility: field.vis, pairing: field.ty, policy, docs })
    }

    /// The name and the arguments of the field's type, if it is a type of `dunlin_core::bundle`.
    fn known(&self) -> Option<(String, &PathArguments)> {
        let Type::Path(path) = &self.pairing else { return None };
        let last = path.path.segments.last()?;
        let name = last.ident.to_string();
        let is_known = matches!(name.as_str(), "ToServer" | "ToClient" | "Call" | "Flip" | "Share");
        is_known.then_some((name, &last.arguments))
    }

    fn is_known(&self) -> bool {
        self.known().is_some()
    }

    /// The trait that has the two ends of this field.
    fn pairing_trait(&self) -> TokenStream {
        let pairing = &self.pairing;
        if self.is_known() {
            return quote_spanned!(Span::mixed_site()=> ::dunlin::Pairing);
        }
        quote_spanned! {Span::mixed_site()=>
            ::dunlin::__rt::Sides<{ use ::dunlin::__rt::NoPairing as _; ::dunlin::__rt::Probe::<#pairing>::IS_PAIRING }>
        }
    }

    /// The type of this field on a face.
    fn end(&self, side: Side) -> TokenStream {
        let (pairing, pairing_trait) = (&self.pairing, self.pairing_trait());
        let end = quote_spanned!(Span::mixed_site()=> <#pairing as #pairing_trait>::#side);
        placed(end, pairing)
    }

    /// The types that must be portable for this field to move.
    fn travelling(&self) -> Vec<TokenStream> {
        match self.known() {
            Some((name, PathArguments::AngleBracketed(arguments))) if !matches!(name.as_str(), "Flip" | "Share") => {
                let messages = arguments.args.iter().filter_map(|argument| match argument {
                    GenericArgument::Type(message) => Some(quote!(#message)),
                    _ => None,
                });
                messages.collect()
            }
            _ => vec![self.end(Side::Client), self.end(Side::Server)],
        }
    }

    fn field(&self, side: Side) -> TokenStream {
        let Self { name, visibility, docs, .. } = self;
        let end = self.end(side);
        let docs = if docs.is_empty() {
            let docs = format!("One end of `{name}`.");
            quote!(#[doc = #docs])
        } else {
            quote!(#(#docs)*)
        };
        quote!(#docs #visibility #name: #end)
    }

    /// Makes both ends: `(client's, server's)`.
    fn make(&self, factory: &Ident) -> TokenStream {
        let pairing = &self.pairing;
        let factory = match &self.policy {
            Some(policy) => {
                let place = Span::mixed_site().located_at(policy.span());
                let policy = quote_spanned!(place=> ::dunlin::Policy::from(#policy));
                quote!(&#factory.with(#policy))
            }
            None => quote!(#factory),
        };
        let place = Span::mixed_site().located_at(pairing.span());
        let pairing_trait = self.pairing_trait();
        quote_spanned!(place=> <#pairing as #pairing_trait>::pair(#factory))
    }
}

/// Whether the struct has `#[bundle(local)]`.
fn is_local(attributes: &[Attribute]) -> Result<bool> {
    let mut local = false;
    for attribute in attributes {
        if attribute.path().is_ident("policy") {
            let what = "`#[policy(..)]` must stand above a field";
            return Err(Error::new_spanned(attribute, what));
        }
        if attribute.path().is_ident("bundle") {
            let what = "only `#[bundle(local)]` is known";
            local = false;
            attribute.parse_nested_meta(|key| {
                local = key.path.is_ident("local");
                if local { Ok(()) } else { Err(key.error(what)) }
            })?;
            if !local {
                return Err(Error::new_spanned(attribute, what));
            }
        }
    }
    Ok(local)
}

#[derive(Clone, Copy)]
enum Side {
    Client,
    Server,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "Client",
            Self::Server => "Server",
        }
    }

    /// The documentation of the face, and of its `share`.
    fn docs(self, bundle: &Ident) -> (String, String) {
        let side = self.name().to_lowercase();
        (
            format!("The {side}'s face of a [`{bundle}`]."),
            format!("Lets several {side}s hold this face, each of which claims it whole to use it."),
        )
    }
}

impl ToTokens for Side {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        Ident::new(self.name(), Span::call_site()).to_tokens(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::{Blame, blame};

    fn refusal(source: &str) -> Blame {
        blame(source, expand)
    }

    fn expansion(source: &str) -> String {
        expand(source.parse().expect(source)).expect(source).to_string()
    }

    #[test]
    fn bundle_without_named_fields_is_refused() {
        let what = "a bundle must be a struct";
        assert_eq!(refusal("enum X { A }"), (what.into(), "enum".into()));
        assert_eq!(refusal("pub union X { a: A }"), (what.into(), "union".into()));

        let what = "the channels of a bundle must have names: `struct Name { field: Type }`";
        assert_eq!(refusal("struct X(A, B);"), (what.into(), "(A, B)".into()));

        let what = "a bundle must have channels: `{ field: Type }`";
        assert_eq!(refusal("struct X;"), (what.into(), "X".into()));
    }

    #[test]
    fn refusals_of_generics() {
        let what = "a bundle may not have generic parameters";
        assert_eq!(refusal("struct X<T> { a: A<T> }"), (what.into(), "<T>".into()));
        assert_eq!(refusal("struct X<'a> { a: A<'a> }"), (what.into(), "<'a>".into()));

        let what = "a bundle may not have a `where` clause";
        assert_eq!(refusal("struct X where A: B { a: A }"), (what.into(), "where A: B".into()));
    }

    #[test]
    fn refusals_of_attributes() {
        let what = "only `#[bundle(local)]` is known";
        assert_eq!(refusal("#[bundle(far)] struct X { a: A }"), (what.into(), "far".into()));
        assert_eq!(refusal("#[bundle(local, far)] struct X { a: A }"), (what.into(), "far".into()));
        assert_eq!(refusal("#[bundle()] struct X { a: A }"), (what.into(), "#[bundle()]".into()));

        let what = "`#[bundle(..)]` must stand above the struct";
        assert_eq!(refusal("struct X { #[bundle(local)] a: A }"), (what.into(), "#[bundle(local)]".into()));

        let what = "`#[policy(..)]` must stand above a field";
        assert_eq!(refusal("#[policy(p)] struct X { a: A }"), (what.into(), "#[policy(p)]".into()));
    }

    #[test]
    fn refusals_of_policies() {
        let what = "a policy must be an expression: `#[policy(fifo(8))]`";
        for policy in ["#[policy]", "#[policy()]", "#[policy(a, b)]", "#[policy = a]"] {
            let source = format!("struct X {{ {policy} a: A }}");
            assert_eq!(refusal(&source), (what.into(), policy.into()));
        }

        let what = "this field already has a policy";
        assert_eq!(refusal("struct X { #[policy(p)] #[policy(q)] a: A }"), (what.into(), "#[policy(q)]".into()));
    }

    #[test]
    fn faces_are_as_visible_as_the_description() {
        let found = expansion("pub(crate) struct X { pub a: ToServer<A>, b: Flip<B> }");
        let client = quote! {
            pub(crate) struct XClient {
                #[doc = "One end of `a`."]
                pub a: <ToServer<A> as ::dunlin::Pairing>::Client,
                #[doc = "One end of `b`."]
                b: <Flip<B> as ::dunlin::Pairing>::Client
            }
        };
        assert!(found.contains(&client.to_string()), "{found}");
        assert!(found.contains(&quote!(pub(crate) fn share(self)).to_string()), "{found}");
        assert!(found.contains(&quote!(pub(crate) fn pair()).to_string()), "{found}");
    }

    #[test]
    fn documentation_is_repeated_on_the_faces() {
        let found = expansion("struct X { /** Says. */ a: ToClient<A> }");
        let field = quote!(#[doc = " Says. "] a: <ToClient<A> as ::dunlin::Pairing>::Server);
        assert!(found.contains(&field.to_string()), "{found}");
    }

    #[test]
    fn a_policy_is_for_its_field_only() {
        let found = expansion("struct X { a: ToServer<A>, #[policy(fifo(8))] b: Call<B, B> }");
        let pairs = quote! {
            let pair0 = <ToServer<A> as ::dunlin::Pairing>::pair(factory);
            let pair1 = <Call<B, B> as ::dunlin::Pairing>::pair(
                &factory.with(::dunlin::Policy::from(fifo(8)))
            );
        };
        assert!(found.contains(&pairs.to_string()), "{found}");
    }

    #[test]
    fn unknown_types_of_fields_are_probed() {
        let probe = |name: &str| format!("Probe :: < {name} >");
        let found = expansion("struct X { a: A, b: dunlin::ToServer<B>, c: c::C<D> }");
        for name in ["A", "c :: C < D >"] {
            assert!(found.contains(&probe(name)), "{name}: {found}");
            assert!(found.contains(&format!("is_pairing :: < {name} >")), "{name}: {found}");
        }
        assert!(!found.contains("is_pairing :: < dunlin"), "{found}");
    }

    #[test]
    fn each_message_is_checked_once() {
        let found = expansion("struct X { a: ToServer<A>, b: Call<A, B>, c: ToClient<B>, }");
        assert!(found.contains("b : < Call < A , B > as :: dunlin :: Pairing > :: Client , c : < ToClient < B > as :: dunlin :: Pairing > :: Client } A , B }"), "{found}");
        assert!(found.contains("c : < ToClient < B > as :: dunlin :: Pairing > :: Server } }"), "{found}");
    }

    #[test]
    fn local_faces_are_not_serialised() {
        let serde = "__face_serde";
        assert_eq!(expansion("struct X { a: A }").matches(serde).count(), 2);
        assert_eq!(expansion("#[bundle(local)] struct X { a: A }").matches(serde).count(), 0);
    }
}
