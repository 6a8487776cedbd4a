//! The public API of the published libraries, a line for each item, is kept in `crates/<crate>/api.txt`: a change of it is seen
//! in review. It is read from the sources with all features on, so it needs neither a nightly compiler nor a build. With
//! `POSTRIDER_WRITE_DOCS` set the files are written, otherwise they are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{Fields, ImplItem, Item, ItemImpl, ItemMacro, ItemUse, Token, TraitItem, Type, UseTree, Visibility};

type Module = Vec<String>;

/// A library: the items of each of its modules.
struct Library {
    modules: BTreeMap<Module, Vec<Item>>,
}

/// What was found: the lines, and the path under which each item was shown first.
#[derive(Default)]
struct Surface {
    lines: BTreeSet<String>,
    shown: BTreeMap<(Module, String), String>,
}

/// A name that a `use` brings in, and where it is from.
struct Import {
    name: String,
    path: Vec<String>,
}

/// `setters! { Options: field: Type, … }`: a method for each field.
struct Setters {
    options: syn::Ident,
    fields: Punctuated<syn::FnArg, Token![,]>,
}

impl syn::parse::Parse for Setters {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Self> {
        let options = input.parse()?;
        input.parse::<Token![:]>()?;
        Ok(Self { options, fields: Punctuated::parse_terminated(input)? })
    }
}

/// `texts! { Record: /// … method => field, … }`: a method for each optional text.
struct Texts {
    record: syn::Ident,
    methods: Punctuated<Text, Token![,]>,
}

struct Text {
    method: syn::Ident,
    field: syn::Ident,
}

impl syn::parse::Parse for Texts {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Self> {
        let record = input.parse()?;
        input.parse::<Token![:]>()?;
        Ok(Self { record, methods: Punctuated::parse_terminated(input)? })
    }
}

impl syn::parse::Parse for Text {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Self> {
        input.call(syn::Attribute::parse_outer)?;
        let method = input.parse()?;
        input.parse::<Token![=>]>()?;
        Ok(Self { method, field: input.parse()? })
    }
}

impl Library {
    fn read(root: &Path) -> Self {
        let mut library = Self { modules: BTreeMap::new() };
        library.read_file(&root.join("lib.rs"), root, Vec::new());
        library
    }

    fn read_file(&mut self, file: &Path, folder: &Path, module: Module) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let items = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items;
        self.read_items(items, folder, module);
    }

    fn read_items(&mut self, items: Vec<Item>, folder: &Path, module: Module) {
        let items: Vec<Item> = items.into_iter().flat_map(expanded).collect();
        for item in &items {
            let Item::Mod(inner) = item else { continue };
            if is_test(&inner.attrs) {
                continue;
            }
            let name = inner.ident.to_string();
            let path = child(&module, &name);
            match &inner.content {
                Some((_, items)) => self.read_items(items.clone(), &folder.join(&name), path),
                None => self.read_file(&folder.join(format!("{name}.rs")), &folder.join(&name), path),
            }
        }
        self.modules.insert(module, items);
    }

    /// The path of a `use` as seen from the root of the library; `None` if it leads out of it.
    fn absolute(&self, path: &[String], from: &Module) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let base = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.clone(),
            "super" => return self.absolute(&[&["self".to_owned()], rest].concat(), &from[..from.len() - 1].to_vec()),
            _ => {
                return self.modules.contains_key(&child(from, first)).then(|| [from.as_slice(), path].concat());
            }
        };
        Some([base.as_slice(), rest].concat())
    }

    /// Where the item of this name is defined, re-exports followed.
    fn find(&self, module: &Module, name: &str) -> Option<(Module, &Item)> {
        let items = self.modules.get(module)?;
        if let Some(item) = items.iter().find(|item| name_of(item).is_some_and(|ident| ident == name)) {
            return Some((module.clone(), item));
        }
        let import = items.iter().filter_map(as_use).flat_map(imports).find(|import| import.name == name)?;
        let mut path = self.absolute(&import.path, module)?;
        let name = path.pop()?;
        self.find(&path, &name)
    }

    /// What a module shows; its own items before those of its modules, so that each has its shortest path.
    fn surface(&self, module: &Module, path: &str, surface: &mut Surface) {
        let items = || self.modules.get(module).into_iter().flatten();
        for item in items() {
            if visibility(item).is_some_and(is_public) {
                let name = name_of(item).expect("a public item has a name").to_string();
                self.show_once(module, item, &format!("{path}::{name}"), surface);
            }
        }
        for import in items().filter_map(as_use).filter(|item| is_public(&item.vis)).flat_map(imports) {
            let Some(mut target) = self.absolute(&import.path, module) else { continue };
            let path = format!("{path}::{}", import.name);
            if self.modules.contains_key(&target) {
                self.surface(&target, &path, surface);
                continue;
            }
            let name = target.pop().expect("a name");
            let (module, item) = self.find(&target, &name).unwrap_or_else(|| panic!("no {target:?}::{name}"));
            self.show_once(&module, item, &path, surface);
        }
        for item in items() {
            if let Item::Mod(inner) = item
                && is_public(&inner.vis)
            {
                let child = child(module, &inner.ident.to_string());
                let path = format!("{path}::{}", inner.ident);
                surface.lines.insert(format!("pub mod {path}"));
                self.surface(&child, &path, surface);
            }
        }
    }

    fn show_once(&self, module: &Module, item: &Item, path: &str, surface: &mut Surface) {
        let name = name_of(item).map(ToString::to_string).unwrap_or_default();
        if let Some(first) = surface.shown.get(&(module.clone(), name.clone())) {
            surface.lines.insert(format!("pub use {first} as {path}"));
            return;
        }
        surface.shown.insert((module.clone(), name), path.to_owned());
        self.show(module, item, path, &mut surface.lines);
    }

    /// An item, what is in it, and what is implemented for it.
    fn show(&self, module: &Module, item: &Item, shown: &str, lines: &mut BTreeSet<String>) {
        match item {
            Item::Struct(item) => {
                lines.insert(format!("pub struct {shown}{}{}", tidy(&item.generics), notes(&item.attrs)));
                show_fields(&item.fields, shown, lines);
            }
            Item::Enum(item) => {
                lines.insert(format!("pub enum {shown}{}{}", tidy(&item.generics), notes(&item.attrs)));
                for variant in &item.variants {
                    let types = variant.fields.iter().map(|field| match &field.ident {
                        Some(name) => format!("{name}: {}", tidy(&field.ty)),
                        None => tidy(&field.ty),
                    });
                    let types = types.collect::<Vec<_>>().join(", ");
                    lines.insert(format!("pub {shown}::{}({types})", variant.ident));
                }
            }
            Item::Trait(item) => {
                lines.insert(format!("pub trait {shown}{}: {}", tidy(&item.generics), tidy(&item.supertraits)));
                for member in &item.items {
                    if let TraitItem::Fn(method) = member {
                        let provided = if method.default.is_some() { " (provided)" } else { "" };
                        lines.insert(format!("pub {shown}::{}{provided}", signature(&method.sig)));
                    }
                }
            }
            Item::Fn(item) => {
                let signature = signature(&item.sig);
                lines.insert(format!("pub fn {}::{signature}", shown.rsplit_once("::").map_or("", |(path, _)| path)));
            }
            Item::Const(item) => {
                lines.insert(format!("pub const {shown}: {}", tidy(&item.ty)));
            }
            other => {
                lines.insert(format!("pub {shown} = {}", tidy(other)));
            }
        }
        let Some(name) = name_of(item).map(ToString::to_string) else { return };
        for (place, items) in &self.modules {
            let is_it = |ident: &str| self.find(place, ident).is_some_and(|(of, _)| of == *module) && ident == name;
            for item in items {
                match item {
                    Item::Impl(item) if last_ident(&item.self_ty).is_some_and(|ident| is_it(&ident)) => {
                        show_impl(item, shown, lines);
                    }
                    Item::Macro(ItemMacro { mac, .. }) if mac.path.is_ident("setters") => {
                        let setters: Setters = mac.parse_body().expect("setters");
                        if is_it(&setters.options.to_string()) {
                            for field in &setters.fields {
                                let field = tidy(field);
                                let name = field.split(':').next().unwrap_or_default();
                                lines.insert(format!("pub fn {shown}::{name}(self, {field}) -> Self"));
                            }
                        }
                    }
                    Item::Macro(ItemMacro { mac, .. }) if mac.path.is_ident("texts") => {
                        let texts: Texts = mac.parse_body().expect("texts");
                        if is_it(&texts.record.to_string()) {
                            for Text { method, field } in &texts.methods {
                                let text = "impl Into<String>";
                                lines.insert(format!("pub fn {shown}::{method}(mut self, {field}: {text}) -> Self"));
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// What the library implements for types that are not its own: `impl Enqueue for &mut PgConnection`.
    fn foreign(&self, lines: &mut BTreeSet<String>) {
        let traits: BTreeSet<String> = lines
            .iter()
            .filter_map(|line| line.strip_prefix("pub trait "))
            .filter_map(|rest| rest.split(": ").next()?.rsplit("::").next())
            .map(|name| name.split('<').next().unwrap_or(name).to_owned())
            .collect();
        for (module, items) in &self.modules {
            for item in items {
                let Item::Impl(item) = item else { continue };
                let Some((_, path, _)) = &item.trait_ else { continue };
                let name = path.segments.last().expect("a trait has a name").ident.to_string();
                let own = last_ident(&item.self_ty).is_some_and(|ident| self.find(module, &ident).is_some());
                if traits.contains(&name) && !own {
                    lines.insert(format!("impl {name} for {}", tidy(&item.self_ty)));
                }
            }
        }
    }
}

fn show_fields(fields: &Fields, shown: &str, lines: &mut BTreeSet<String>) {
    for (index, field) in fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis)) {
        let name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
        lines.insert(format!("pub {shown}::{name}: {}", tidy(&field.ty)));
    }
}

fn show_impl(item: &ItemImpl, shown: &str, lines: &mut BTreeSet<String>) {
    if let Some((_, path, _)) = &item.trait_ {
        lines.insert(format!("impl{} {} for {shown}", tidy(&item.generics), tidy(path)));
        return;
    }
    for member in &item.items {
        match member {
            ImplItem::Fn(method) if is_public(&method.vis) => {
                lines.insert(format!("pub fn {shown}::{}", signature(&method.sig)));
            }
            ImplItem::Const(item) if is_public(&item.vis) => {
                lines.insert(format!("pub const {shown}::{}: {}", item.ident, tidy(&item.ty)));
            }
            _ => {}
        }
    }
}

fn child(module: &[String], name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// `words! { pub enum … }` declares enums as they would be written without it.
fn expanded(item: Item) -> Vec<Item> {
    match &item {
        Item::Macro(ItemMacro { mac, .. }) if mac.path.is_ident("words") => {
            mac.parse_body::<syn::File>().expect("enums").items
        }
        _ => vec![item],
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| matches!(tidy(&attribute.meta).as_str(), "cfg(test)" | "cfg(doctest)"))
}

/// What of the attributes is part of the API.
fn notes(attributes: &[syn::Attribute]) -> String {
    let told = attributes.iter().map(|attribute| tidy(&attribute.meta));
    let told = told.filter(|meta| meta.starts_with("derive") || meta == "non_exhaustive");
    told.fold(String::new(), |notes, meta| format!("{notes} #[{meta}]"))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn as_use(item: &Item) -> Option<&ItemUse> {
    if let Item::Use(item) = item { Some(item) } else { None }
}

fn visibility(item: &Item) -> Option<&Visibility> {
    Some(match item {
        Item::Struct(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Const(item) => &item.vis,
        Item::Type(item) => &item.vis,
        _ => return None,
    })
}

fn name_of(item: &Item) -> Option<&syn::Ident> {
    Some(match item {
        Item::Struct(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Const(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    })
}

fn imports(item: &ItemUse) -> Vec<Import> {
    fn walk(tree: &UseTree, path: &mut Vec<String>, found: &mut Vec<Import>) {
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                walk(&tree.tree, path, found);
                path.pop();
            }
            UseTree::Name(tree) if tree.ident == "self" => {
                found.push(Import { name: path.last().cloned().unwrap_or_default(), path: path.clone() });
            }
            UseTree::Name(tree) => {
                let name = tree.ident.to_string();
                found.push(Import { path: child(path, &name), name });
            }
            UseTree::Rename(tree) => {
                let path = child(path, &tree.ident.to_string());
                found.push(Import { name: tree.rename.to_string(), path });
            }
            UseTree::Group(tree) => tree.items.iter().for_each(|tree| walk(tree, path, found)),
            UseTree::Glob(_) => {}
        }
    }
    let mut found = Vec::new();
    walk(&item.tree, &mut Vec::new(), &mut found);
    found
}

fn last_ident(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

fn signature(signature: &syn::Signature) -> String {
    let text = tidy(signature);
    let text = text.strip_prefix("async ").map_or_else(|| text.clone(), |rest| format!("{rest} (async)"));
    text.replacen("fn ", "", 1)
}

/// Tokens as one would write them, or nearly.
fn tidy(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("& ", "&"),
        (" ,", ","),
        (",)", ")"),
        ("( ", "("),
        (" )", ")"),
        (" (", "("),
        ("->(", "-> ("),
        ("[ ", "["),
        (" ]", "]"),
        (" :", ":"),
        ("? ", "?"),
        (" ;", ";"),
        (", )", ")"),
        (",>", ">"),
        ("impl<", "impl <"),
    ] {
        text = text.replace(from, to);
    }
    text.replace("impl <", "impl<")
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

#[test]
fn the_public_api_is_the_one_that_was_reviewed() {
    for (name, path) in [("postrider", "postrider"), ("postrider_relay", "postrider-relay")] {
        let library = Library::read(&crates().join(path).join("src"));
        let mut surface = Surface::default();
        library.surface(&Vec::new(), name, &mut surface);
        let mut lines = surface.lines;
        library.foreign(&mut lines);
        assert!(lines.len() > 200, "only {} lines: the sources of {name} are not read as they should be", lines.len());
        let file = crates().join(path).join("api.txt");
        if std::env::var_os("POSTRIDER_WRITE_DOCS").is_some() {
            fs::write(&file, lines.iter().fold(String::new(), |text, line| text + line + "\n")).unwrap();
        }
        let reviewed = fs::read_to_string(&file).unwrap_or_default();
        let reviewed: BTreeSet<String> = reviewed.lines().map(str::to_owned).collect();
        let gone: Vec<_> = reviewed.difference(&lines).collect();
        let new: Vec<_> = lines.difference(&reviewed).collect();
        assert!(
            gone.is_empty() && new.is_empty(),
            "the public API of {name} is another one.\nGone: {gone:#?}\nNew: {new:#?}\nIf that is meant: \
             POSTRIDER_WRITE_DOCS=1 cargo nextest run --workspace --features full public_api::"
        );
    }
}
