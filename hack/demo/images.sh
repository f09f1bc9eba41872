# shellcheck shell=bash
# Images of the programs that the shipped Templates run, out of Debian's packages: the development cluster has no registry. They have the
# names of the official images, and what the Templates need of those: the same programs in PATH, the same users, a shell.
# Sourced by hack/demo.sh, whose functions and variables it uses.

images_cache=${ATOLL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/atoll/images

# packages_of PACKAGE... prints the packages and the libraries that they need, without those of optional parts.
packages_of() {
	local -A seen=()
	local queue=("$@") next
	while ((${#queue[@]})); do
		next=${queue[0]} queue=("${queue[@]:1}")
		[[ -z ${seen[$next]:-} ]] || continue
		seen[$next]=yes
		echo "$next"
		mapfile -t -O "${#queue[@]}" queue < <(apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$next" |
			sed -nE 's/^ *(Pre)?Depends: ((lib|lua-|zlib1g|redis-tools|nginx-common|postgresql-client-[0-9]).*)/\2/p' | grep -vE '^lib(llvm|z3)')
	done
}

# image_root DIRECTORY PACKAGE... unpacks packages and what they need.
image_root() {
	local to=$1 downloads link
	shift
	downloads=$(mktemp -d)
	# As root, apt-get would drop its privileges for the download, and could not write into the folder.
	packages_of "$@" busybox-static >"$downloads/packages"
	(cd "$downloads" && xargs apt-get -qq -o APT::Sandbox::User=root download <packages >/dev/null)
	mkdir -p "$to"/{etc,tmp,run}
	for package in "$downloads"/*.deb; do dpkg-deb --extract "$package" "$to"; done
	for link in bin sbin lib lib64; do
		if [[ -d $to/$link && ! -L $to/$link ]]; then
			mkdir -p "$to/usr/$link"
			cp -a "$to/$link/." "$to/usr/$link/"
			rm -rf "${to:?}/$link"
		fi
		[[ ! -d $to/usr/$link ]] || ln -sfn "usr/$link" "$to/$link"
	done
	for link in sh cat grep mkdir mv rm sleep; do ln -sf busybox "$to/usr/bin/$link"; done
	rm -rf "$to"/usr/share/{doc,man,locale,lintian,bash-completion,info} "$to"/var/{cache,lib/apt}
	chmod 1777 "$to/tmp"
	rm -rf "$downloads"
}

# server_image NAME SCRIPT builds the image unless the cache has it, and prints the path of its archive. SCRIPT, a function, fills the
# root folder and sets image_user and image_flags.
server_image() {
	local name=$1 fill=$2 key archive root image_user image_flags=()
	key=$(declare -f packages_of image_root server_image "$fill" | sha256sum | cut -c1-12)
	archive=$images_cache/${fill#*_}-$key.tar
	if [[ ! -s $archive ]]; then
		mkdir -p "$images_cache"
		[[ -n $(ls /var/lib/apt/lists/*Packages* 2>/dev/null) ]] || flock "${TMPDIR:-/tmp}/atoll-apt-get.lock" apt-get -qq update >&2
		root=$(mktemp -d)
		"$fill" "$root" >&2
		printf 'root:x:0:0:root:/:/sbin/nologin\nserver:x:%d:%d::/tmp:/sbin/nologin\n' "$image_user" "$image_user" >"$root/etc/passwd"
		printf 'root:x:0:\nserver:x:%d:\n' "$image_user" >"$root/etc/group"
		devcluster build-image --name "$name" --tar "$archive.new" --root "$root" --user "$image_user" "${image_flags[@]}" >&2
		mv "$archive.new" "$archive"
		rm -rf "$root"
	fi
	echo "$archive"
}

fill_redis() {
	image_root "$1" redis-server
	image_user=999
}

fill_postgres() {
	image_root "$1" postgresql-15 postgresql-client-15 tzdata
	rm -rf "$1"/usr/lib/postgresql/15/lib/bitcode "$1"/usr/lib/postgresql/15/lib/llvmjit*
	image_user=999 image_flags=(--env PATH=/usr/lib/postgresql/15/bin:/usr/bin)
}

# fill_nginx makes what nginx-unprivileged is: nginx that listens on 8080 and needs no file system to write to but /tmp.
fill_nginx() {
	image_root "$1" nginx
	mkdir -p "$1/usr/share/nginx/html"
	echo '<h1>It works</h1>' >"$1/usr/share/nginx/html/index.html"
	cat >"$1/etc/nginx/nginx.conf" <<-CONF
		pid /tmp/nginx.pid;
		error_log /dev/stderr;
		events {}
		http {
		  include /etc/nginx/mime.types;
		  access_log /dev/stdout;
		  client_body_temp_path /tmp/body; proxy_temp_path /tmp/proxy; fastcgi_temp_path /tmp/fastcgi; uwsgi_temp_path /tmp/uwsgi; scgi_temp_path /tmp/scgi;
		  server { listen 8080; root /usr/share/nginx/html; }
		}
	CONF
	image_user=101 image_flags=(--entrypoint /usr/sbin/nginx --entrypoint -g --entrypoint 'daemon off;')
}

# load_server_images loads the images into the nodes of a development cluster. Others pull the official ones.
load_server_images() {
	local image fill archive
	[[ $(image_route) == devcluster ]] || return 0
	while read -r image fill; do
		archive=$(server_image "$image" "$fill") || fail "the image $image cannot be built"
		[[ $(recall "image-${fill#*_}") != "$archive" ]] || continue
		devcluster load-image "$archive" "$image"
		remember "image-${fill#*_}" "$archive"
	done <<-LIST
		docker.io/library/redis:7 fill_redis
		docker.io/library/postgres:15 fill_postgres
		docker.io/nginxinc/nginx-unprivileged:stable fill_nginx
	LIST
}

# load_tofu_image loads the image of OpenTofu's runs.
load_tofu_image() {
	local route name=docker.io/local/atoll-tofu:dev
	route=$(image_route)
	[[ $route != registry ]] || return 1
	step "building the image $name; the first time takes minutes"
	make --no-print-directory tofu-image-tar TOFU_IMAGE="$name"
	load_archive "$route" bin/tofu-image.tar
}
